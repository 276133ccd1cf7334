package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/store"
)

const defaultDatabase = "patchlog.db"

const introduction = `patchlog stores the sessions of LLM agents as append-only logs. Patches decide which events a model sees. The log keeps
every event.

KEY names a session: app/user/session. Each part is percent-escaped, so a slash inside a part is %2F.

DATABASE is one of

  a file
  postgres://USER@HOST:PORT/NAME, a database on PostgreSQL
  http://HOST:PORT/, an inspector (read-only), if a program has the file open

Any part of a postgres URL may be left out. Missing parts are taken from the PG* variables, the password file and the
service file. An argument must not contain a password; use PGPASSWORD, a password file or PATCHLOG_DB.

The exit code is 0 if the command is done, 1 if it was refused or failed, and 2 if the usage is wrong.`

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "patchlog",
		Short: "Session logs of LLM agents, and patches to them",
		Long:  introduction,
		Example: `  patchlog import shop/ada/4711 session.jsonl
  patchlog log shop/ada/4711 --last 10
  patchlog demo`,
		Args:          subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.ValidateFlagGroups(); err != nil {
				if m := setFlags.FindStringSubmatch(err.Error()); m != nil {
					return usagef("--%s do not go together", strings.ReplaceAll(m[1], " ", " and --"))
				}
				return usagef("%v", err)
			}
			return nil
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.errs)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := cmd.Short + ".\n\n"
		if cmd.Long != "" {
			text += terminal.Wrap(joinLines(cmd.Long), a.out.Columns(), "") + "\n\n"
		}
		fmt.Fprint(a.out, text+cmd.UsageString())
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", a.out.Columns())))
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
		if unknown != nil && unknown.GetSpecifiedShortnames() != "" && strings.Contains("0123456789", unknown.GetSpecifiedName()) {
			return usagef("-%s: numbers must not be negative", unknown.GetSpecifiedShortnames())
		}
		return usagef("%v", err)
	})
	fs := root.PersistentFlags()
	fs.StringVar(&a.db, "db", cmp.Or(a.db, a.env("PATCHLOG_DB"), defaultDatabase), "the `DATABASE`; also from the environment variable PATCHLOG_DB")
	fs.Lookup("db").DefValue = defaultDatabase
	fs.BoolVar(&a.json, "json", a.json, "write JSON, for programs")

	a.addGroup(root, "Sessions", a.openCommand(), a.importCommand(), a.exportCommand(), a.sessionsCommand(), a.forkCommand(), a.deleteCommand(), a.retainCommand())
	a.addGroup(root, "What a model sees, and why", a.logCommand(), a.auditCommand(), a.searchCommand(), a.serveCommand(), a.statsCommand(), a.diffCommand(), a.lossCommand())
	a.addGroup(root, "Patches", a.patchCommand(), a.pinCommand(), a.revertCommand(), a.rewindCommand(), a.compactCommand(), a.repairCommand(), a.eraseCommand())
	a.addGroup(root, "More", a.demoCommand(), a.verifyCommand(), a.backupCommand(), a.vacuumCommand(), a.salvageCommand())
	root.SetCompletionCommandGroupID("More")
	root.SetHelpCommandGroupID("More")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		cmd.SuggestFor = otherNames[cmd.Name()]
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, help
		case "completion":
			cmd.Args, cmd.RunE = subcommand, missing
		}
	}
	return root
}

// otherNames maps a command's name to other names that users may try.
var otherNames = map[string][]string{
	"audit":    {"history", "records"},
	"compact":  {"summarise", "summarize"},
	"log":      {"show", "view", "cat"},
	"patch":    {"hide", "splice", "truncate"},
	"pin":      {"unpin"},
	"revert":   {"undo"},
	"sessions": {"list", "ls"},
}

// lineEnd matches a line end within a paragraph. The next line is neither empty nor indented.
var lineEnd = regexp.MustCompile(`(\S)\n([^\n ])`)

// joinLines joins the lines of each paragraph, so that the paragraph can be wrapped. Indented lines are not
// joined.
func joinLines(text string) string { return lineEnd.ReplaceAllString(text, "$1 $2") }

// setFlags matches the flag names in cobra's error about flags that exclude each other.
var setFlags = regexp.MustCompile(`\[([^]]*)] were all set$`)

// version returns the versions of the module and of Go, and the name of the platform.
func version() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("patchlog %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// addGroup adds commands to a group in the root command's help.
func (a *app) addGroup(root *cobra.Command, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, cmd := range cmds {
		cmd.GroupID = title
		root.AddCommand(cmd)
		if cmd.Args == nil {
			cmd.Args = operands
		}
		if cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = a.completeOperand
		}
	}
}

func missing(cmd *cobra.Command, _ []string) error {
	return usagef("a command is missing: one of %s", strings.Join(namesOf(cmd.Commands()), ", "))
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

// subcommand returns an error that names the unknown command and suggests similar names. It returns nil if there are
// no arguments.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	cmd.SuggestionsMinimumDistance = 2
	meant := cmd.SuggestionsFor(args[0])
	if !cmd.HasParent() && args[0] == "version" {
		meant = []string{"--version"}
	}
	if len(meant) > 0 {
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
	target.InitDefaultVersionFlag()
	return target.Help()
}

// operands returns an error if an operand is empty, or if the number of operands does not fit the usage line.
func operands(cmd *cobra.Command, args []string) error {
	for i, arg := range args {
		switch name := operand(cmd, i); {
		case name == "":
			return usagef("unexpected argument %q", arg)
		case arg == "":
			return usagef("%s is empty", name)
		}
	}
	required := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(use string) bool { return strings.HasPrefix(use, "[") })
	if len(args) < len(required) {
		return usagef("%s is missing", strings.TrimSuffix(required[len(args)], "..."))
	}
	return nil
}

// operand returns the name that the usage line gives to argument i, or "" if the command takes fewer arguments. In a
// usage line, operands in brackets are optional, and an operand with dots may be repeated.
func operand(cmd *cobra.Command, i int) string {
	want := strings.Fields(cmd.Use)[1:]
	if last := len(want) - 1; i > last && last >= 0 && strings.Contains(want[last], "...") {
		i = last
	}
	if i >= len(want) {
		return ""
	}
	return strings.NewReplacer("[", "", "]", "", "...", "").Replace(want[i])
}

// command parses a help text and returns its command. The text consists of a usage line, a short description in
// one line, a long description, and examples in lines that begin with "$ ". An empty line stands before the long
// description and before the examples.
func command(help string) *cobra.Command {
	use, rest, _ := strings.Cut(help, "\n")
	short, rest, _ := strings.Cut(rest, "\n")
	long, examples, _ := strings.Cut(rest, "\n$ ")
	return &cobra.Command{Use: use, Short: short, Long: strings.TrimSpace(long), Example: "  " + strings.ReplaceAll(examples, "\n$ ", "\n  ")}
}

// onSession returns a function that runs do on the session named by the operand KEY. The database is opened for writing
// if dryRun is not nil and *dryRun is false.
func (a *app) onSession(dryRun *bool, do func(ctx context.Context, s *store.Store, key store.Key, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		key, err := parseKey("KEY", args[0])
		if err != nil {
			return err
		}
		return a.withStore(cmd.Context(), writingUnless(dryRun == nil || *dryRun), func(s *store.Store) error {
			return suggestSession(cmd.Context(), s, key, do(cmd.Context(), s, key, args))
		}, key)
	}
}

const mostSuggestions = 3

func similar(word string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	meant := all.SuggestionsFor(word)
	return meant[:min(len(meant), mostSuggestions)]
}

// Limits on the number of sessions. suggestedAmong limits how many keys are compared with a mistyped key, and
// mostCompleted limits how many keys are offered as completions.
const (
	suggestedAmong = 10_000
	mostCompleted  = 200
)

// keysOf returns up to most keys of sessions that begin with the given text.
func keysOf(ctx context.Context, s *store.Store, begin string, most int) (keys []string) {
	for info, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			continue // the session is damaged
		}
		if key := info.Key.String(); strings.HasPrefix(key, begin) {
			if keys = append(keys, key); len(keys) == most {
				break
			}
		}
	}
	return keys
}

// suggestSession adds a suggestion to an error about a session that does not exist.
func suggestSession(ctx context.Context, s *store.Store, key store.Key, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if _, missing := s.Info(ctx, key); !errors.Is(missing, store.ErrNotFound) {
		return err
	}
	if meant := similar(key.String(), keysOf(ctx, s, "", suggestedAmong)); len(meant) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(meant, " or "))
	}
	return fmt.Errorf("%w; 'patchlog sessions' lists what is there", err)
}

// completeOperand completes names of files and keys of sessions, depending on the operand in the usage line.
func (a *app) completeOperand(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	switch operand(cmd, len(args)) {
	case "FILE", "PATH", "OLD", "NEW":
		return completeFile(cmd, args, typed)
	case "KEY":
		a.withStore(cmd.Context(), database.Reading, func(s *store.Store) error { // if this fails, there are no completions
			found = keysOf(cmd.Context(), s, typed, mostCompleted)
			return nil
		})
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeFile makes the shell complete the name of a file.
func completeFile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
