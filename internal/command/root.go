package command

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

const defaultDatabase = "patchlog.db"

const introduction = `patchlog keeps the sessions of LLM agents as append-only logs. Patches say which of the events a
model sees; nothing that was logged is lost.

KEY is app/user/session, each part percent-escaped (a slash inside a part is %2F). DATABASE is a file, or
postgres://USER@HOST:PORT/NAME; what is left out is taken from the PG* variables, the password file and the
service file. A password is given there or in PATCHLOG_DB, never as an argument.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.`

const helpTemplate = `{{.Short}}.

{{with .Long}}{{.}}

{{end}}{{.UsageString}}`

// rootCommand returns the tree of all commands.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "patchlog",
		Short: "Session logs of LLM agents, and patches to them",
		Long:  introduction,
		Example: examples(
			"patchlog import shop/ada/4711 session.jsonl",
			"patchlog log shop/ada/4711 --last 10",
			"patchlog demo",
		),
		Args:          subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,

		// An error of flags that do not go together is one of usage as well.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.ValidateFlagGroups(); err != nil {
				return usagef("%v", err)
			}
			return nil
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.errs)
	root.SetHelpTemplate(helpTemplate)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
			return subcommand(cmd, cmd.Flags().Args())
		}
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			if meant := similar(unknown.GetSpecifiedName(), names); len(meant) > 0 {
				return usagef("%v, did you mean --%s?", err, strings.Join(meant, " or --"))
			}
		}
		return usagef("%v", err)
	})
	fs := root.PersistentFlags()
	fs.StringVar(&a.db, "db", cmp.Or(a.db, a.env("PATCHLOG_DB"), defaultDatabase), "the `DATABASE`: a file, or postgres://...; also from the environment variable PATCHLOG_DB")
	fs.Lookup("db").DefValue = defaultDatabase
	fs.BoolVar(&a.json, "json", a.json, "write JSON, for programs")

	a.addGroup(root, "Sessions", a.importCommand(), a.exportCommand(), a.sessionsCommand(), a.forkCommand(), a.deleteCommand(), a.retainCommand())
	a.addGroup(root, "What a model sees, and why", a.logCommand(), a.auditCommand(), a.searchCommand(), a.serveCommand(), a.statsCommand(), a.diffCommand(), a.lossCommand())
	a.addGroup(root, "Patches", a.patchCommand(), a.pinCommand(), a.revertCommand(), a.rewindCommand(), a.compactCommand(), a.eraseCommand())
	a.addGroup(root, "More", a.demoCommand(), a.verifyCommand(), a.backupCommand(), a.vacuumCommand(), a.salvageCommand(), a.docsCommand())
	root.SetCompletionCommandGroupID("More")
	root.SetHelpCommandGroupID("More")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, help
		case "completion":
			cmd.Args, cmd.RunE = subcommand, missing
		}
	}
	return root
}

// version is the module's version, as the build knows it, and what it was built with and for.
func version() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("patchlog %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// addGroup adds commands below a heading.
func (a *app) addGroup(root *cobra.Command, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, cmd := range cmds {
		cmd.GroupID = title
		root.AddCommand(cmd)
		for _, c := range append(cmd.Commands(), cmd) {
			if !c.HasSubCommands() && c.Args == nil {
				c.Args, c.ValidArgsFunction = operands, a.completeOperand
			}
		}
	}
}

// family returns a command that is nothing without one of its subcommands.
func family(name, short string, cmds ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: subcommand, RunE: missing}
	cmd.AddCommand(cmds...)
	return cmd
}

func missing(cmd *cobra.Command, _ []string) error {
	return usagef("which? one of %s", strings.Join(namesOf(cmd.Commands()), ", "))
}

func namesOf(cmds []*cobra.Command) []string {
	var names []string
	for _, cmd := range cmds {
		if cmd.IsAvailableCommand() {
			names = append(names, cmd.Name())
		}
	}
	return names
}

// subcommand refuses what is no command, and names those that may have been meant.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	cmd.SuggestionsMinimumDistance = 2
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		text += ", did you mean " + strings.Join(meant, " or ") + "?"
	} else if cmd.HasParent() && cmd.HasSubCommands() {
		text += ", want one of " + strings.Join(namesOf(cmd.Commands()), ", ")
	}
	return usagef("%s", text)
}

func help(cmd *cobra.Command, args []string) error {
	target, rest, err := cmd.Root().Find(args)
	if err == nil {
		err = subcommand(target, rest)
	}
	if err != nil {
		return err
	}
	target.InitDefaultHelpFlag()
	return target.Help()
}

// operands holds the arguments to what the usage line says of them: those in brackets may
// be left out, and of the last one with dots there may be several.
func operands(cmd *cobra.Command, args []string) error {
	want := strings.Fields(cmd.Use)[1:]
	switch i := slices.Index(args, ""); {
	case i >= 0 && len(want) > 0:
		return usagef("%s is empty", strings.Trim(want[min(i, len(want)-1)], "[.]"))
	case len(args) < len(want) && !strings.HasPrefix(want[len(args)], "["):
		return usagef("%s is missing", strings.TrimSuffix(want[len(args)], "..."))
	case len(args) > len(want) && !(len(want) > 0 && strings.HasSuffix(strings.TrimSuffix(want[len(want)-1], "]"), "...")):
		return usagef("unexpected argument %q", args[len(want)])
	}
	return nil
}

func examples(lines ...string) string { return "  " + strings.Join(lines, "\n  ") }

func (a *app) docsCommand() *cobra.Command {
	man := &cobra.Command{
		Use:     "man DIR",
		Short:   "Write a manual page for each command into a directory, which is made if need be",
		Example: examples("patchlog docs man ~/.local/share/man/man1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			return doc.GenManTree(root, &doc.GenManHeader{Source: "patchlog", Manual: "patchlog"}, args[0])
		},
	}
	return family("docs", "Write documentation", man)
}
