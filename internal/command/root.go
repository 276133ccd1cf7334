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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

const defaultDatabase = "patchlog.db"

const introduction = `patchlog stores the sessions of LLM agents as append-only logs. Patches decide which events a model sees; the log keeps
every event.

KEY is app/user/session, each part percent-escaped (a slash inside a part is %2F). DATABASE is one of

  a file
  postgres://USER@HOST:PORT/NAME, any part of which may be left out
  http://HOST:PORT/, an inspector, to read a database that another program has open

Missing parts of a postgres URL are taken from the PG* variables, the password file and the service file. A password is
taken from there or from PATCHLOG_DB, never from an argument.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.`

// rootCommand returns the tree of all commands.
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
			text += wrap(joinLines(cmd.Long), a.out.columns, "") + "\n\n"
		}
		fmt.Fprint(a.out, text+cmd.UsageString())
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", a.out.columns)))
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
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, help
		case "completion":
			cmd.Args, cmd.RunE = subcommand, missing
		}
	}
	return root
}

// setFlags matches the flags in cobra's error about flags that exclude each other.
var setFlags = regexp.MustCompile(`\[([^]]*)] were all set$`)

// version returns the module's version, with the Go version and the platform of the build.
func version() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("patchlog %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// addGroup adds commands under a heading of the help.
func (a *app) addGroup(root *cobra.Command, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, cmd := range cmds {
		cmd.GroupID = title
		root.AddCommand(cmd)
		for _, c := range append(cmd.Commands(), cmd) {
			if c.HasSubCommands() {
				continue
			}
			if c.Args == nil {
				c.Args = operands
			}
			if c.ValidArgsFunction == nil {
				c.ValidArgsFunction = a.completeOperand
			}
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

// subcommand refuses an unknown command, and suggests similar ones.
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

// operands checks the arguments against the usage line: operands in brackets are optional, and one with dots may be
// repeated.
func operands(cmd *cobra.Command, args []string) error {
	want := strings.Fields(cmd.Use)[1:]
	switch i := slices.Index(args, ""); {
	case i >= 0 && len(want) > 0:
		return usagef("%s is empty", operandName(want[min(i, len(want)-1)]))
	case len(args) < len(want) && !strings.HasPrefix(want[len(args)], "["):
		return usagef("%s is missing", operandName(want[len(args)]))
	case len(args) > len(want) && !(len(want) > 0 && strings.HasSuffix(strings.TrimSuffix(want[len(want)-1], "]"), "...")):
		return usagef("unexpected argument %q", args[len(want)])
	}
	return nil
}

// operandName returns an operand of a usage line without brackets and dots.
func operandName(use string) string {
	return strings.NewReplacer("[", "", "]", "", "...", "").Replace(use)
}

// command returns a command made from its help: the usage line, a short description, after an empty line a long one, and
// examples, each after a $.
func command(help string) *cobra.Command {
	use, rest, _ := strings.Cut(help, "\n")
	short, rest, _ := strings.Cut(rest, "\n")
	long, examples, _ := strings.Cut(rest, "\n$ ")
	return &cobra.Command{Use: use, Short: short, Long: strings.TrimSpace(long), Example: "  " + strings.ReplaceAll(examples, "\n$ ", "\n  ")}
}

// onSession returns the function of a command that works on the session KEY. It opens the database for writing if dryRun
// is not nil and false.
func (a *app) onSession(dryRun *bool, do func(ctx context.Context, s *store.Store, key store.Key, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		return a.withStore(cmd.Context(), writingUnless(dryRun == nil || *dryRun), func(s *store.Store) error {
			return suggestSession(cmd.Context(), s, key, do(cmd.Context(), s, key, args))
		}, key)
	}
}

// number is the value of a flag that takes an integer not below least.
type number struct {
	n     *int
	least int
}

func (f number) Type() string   { return "int" }
func (f number) String() string { return fmt.Sprint(*f.n) }

func (f number) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("want an integer")
	}
	if n < f.least {
		return fmt.Errorf("want an integer from %d on", f.least)
	}
	*f.n = n
	return nil
}

// seqVar declares a flag that takes a seq, 0 included. The value stays nil if the flag is not given.
func seqVar(fs *pflag.FlagSet, value **uint64, name, usage string) {
	fs.Func(name, usage, func(text string) error {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return errors.New("want an integer from 0 on")
		}
		*value = &n
		return nil
	})
}

// confirm makes a command demand --yes or --dry-run, since its effect cannot be undone. check checks the arguments before
// that.
func confirm(cmd *cobra.Command, check func(args []string) error) (dryRun *bool) {
	yes := cmd.Flags().Bool("yes", false, "do it, though it cannot be undone")
	dryRun = declareDryRun(cmd)
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if err := check(args); err != nil {
			return err
		}
		if !*yes && !*dryRun {
			return usagef("this cannot be undone: --dry-run shows what would be done, and --yes does it")
		}
		return nil
	}
	return dryRun
}

// choice is the value of a flag that takes one of a few words.
type choice struct {
	value *string
	of    []string
}

func (f choice) Type() string   { return strings.Join(f.of, "|") }
func (f choice) String() string { return *f.value }

func (f choice) Set(text string) error {
	if !slices.Contains(f.of, text) {
		return fmt.Errorf("want one of %s", strings.Join(f.of, ", "))
	}
	*f.value = text
	return nil
}

// choose declares a [choice] of a command.
func choose(cmd *cobra.Command, value *string, name, usage string, of ...string) {
	cmd.Flags().Var(choice{value, of}, name, usage)
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp))
}

// textVar declares a flag that takes a text that is not empty.
func textVar(fs *pflag.FlagSet, value *string, name, usage string) {
	fs.Func(name, usage, func(text string) error {
		if text == "" {
			return errors.New("want a text")
		}
		*value = text
		return nil
	})
}

// timeVar declares a flag that takes a time, or a date for its first moment in UTC.
func timeVar(fs *pflag.FlagSet, value *time.Time, name, usage string) {
	fs.Func(name, usage, func(text string) (err error) {
		if *value, err = time.Parse(time.RFC3339, text); err != nil {
			*value, err = time.Parse(time.DateOnly, text)
		}
		if err != nil {
			err = errors.New("want a time such as 2025-01-02T15:04:05Z, or a date")
		}
		return err
	})
}

// redactHelp is the help about --redact.
const redactHelp = `--redact replaces keys, cards, IBANs, e-mail addresses and telephone numbers by placeholders such as [card 3f9a1c07];
--redact=key,ip selects among key, card, iban, email, phone and ip. Names and postal addresses are not found. With the
same PATCHLOG_REDACT_KEY, itself a secret, a value has the same placeholder in all runs.`

// redaction is the value of the flag --redact.
type redaction struct{ patterns []redact.Pattern }

const defaultKinds = "default"

func (f *redaction) declare(cmd *cobra.Command) {
	cmd.Flags().VarPF(f, "redact", "", "replace secrets, or those of these `KINDS`, by placeholders").NoOptDefVal = defaultKinds
	cmd.RegisterFlagCompletionFunc("redact", cobra.FixedCompletions(kinds(), cobra.ShellCompDirectiveNoFileComp))
}

func (f *redaction) Type() string   { return "kinds" }
func (f *redaction) String() string { return "" }

func (f *redaction) Set(text string) error {
	if text == defaultKinds {
		f.patterns = redact.Default()
		return nil
	}
	all := redact.All()
	f.patterns = nil
	for kind := range strings.SplitSeq(text, ",") {
		at := slices.Index(kinds(), kind)
		if at < 0 {
			return fmt.Errorf("unknown kind %q; one of %s", kind, strings.Join(kinds(), ", "))
		}
		f.patterns = append(f.patterns, all[at])
	}
	return nil
}

// kinds returns the names of all patterns.
func kinds() (names []string) {
	for _, p := range redact.All() {
		names = append(names, p.Name)
	}
	return names
}

// redactor returns the redactor for the flag, or nil if it is not set.
func (a *app) redactor(f redaction) (*redact.Redactor, error) {
	if f.patterns == nil {
		return nil, nil
	}
	return redact.New(redact.Options{Patterns: f.patterns, Key: []byte(a.env("PATCHLOG_REDACT_KEY"))})
}

// mostSuggestions is the maximum number of names that an error suggests.
const mostSuggestions = 3

// similar returns the names that are similar to a word.
func similar(word string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	meant := all.SuggestionsFor(word)
	return meant[:min(len(meant), mostSuggestions)]
}

// Limits for the sessions that are searched for a similar key, and for those that are completed.
const (
	suggestedAmong = 10_000
	mostCompleted  = 200
)

// keysOf returns at most most keys of sessions that begin with a text.
func keysOf(ctx context.Context, s *store.Store, begin string, most int) (keys []string) {
	for info, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			continue // a damaged session
		}
		if key := info.Key.String(); strings.HasPrefix(key, begin) {
			if keys = append(keys, key); len(keys) == most {
				break
			}
		}
	}
	return keys
}

// suggestSession adds similar keys to an error if the session does not exist.
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

// completeOperand completes an operand by its name in the usage line: files, and from the database the keys of sessions.
func (a *app) completeOperand(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	want := strings.Fields(cmd.Use)[1:]
	i := len(args)
	if n := len(want); i >= n && n > 0 && strings.HasSuffix(strings.TrimSuffix(want[n-1], "]"), "...") {
		i = n - 1
	}
	if i >= len(want) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	switch operandName(want[i]) {
	case "FILE", "OLD", "NEW":
		return completeFile(cmd, args, typed)
	case "KEY":
		a.withStore(cmd.Context(), Reading, func(s *store.Store) error { // without the database there is nothing to complete
			found = keysOf(cmd.Context(), s, typed, mostCompleted)
			return nil
		})
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeFile lets the shell complete the name of a file.
func completeFile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
