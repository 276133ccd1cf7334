package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/patchlog-dev/patchlog/patch/redact"
)

// parsed declares a flag whose value the function parse parses. The argument want describes the accepted values
// in errors.
func parsed[T any](fs *pflag.FlagSet, value *T, name, usage, want string, parse func(text string) (T, error)) {
	fs.Func(name, usage, func(text string) error {
		v, err := parse(text)
		if err != nil {
			return errors.New("want " + want)
		}
		*value = v
		return nil
	})
}

// seqVar declares a flag that takes a seq or 0. If the flag is not set, the value stays nil.
func seqVar(fs *pflag.FlagSet, value **uint64, name, usage string) {
	parsed(fs, value, name, usage, "an integer from 0 on", func(text string) (*uint64, error) {
		n, err := strconv.ParseUint(text, 10, 64)
		return &n, err
	})
}

// textVar declares a flag that takes a nonempty text.
func textVar(fs *pflag.FlagSet, value *string, name, usage string) {
	parsed(fs, value, name, usage, "a text", func(text string) (string, error) {
		if text == "" {
			return "", errors.New("empty")
		}
		return text, nil
	})
}

// timeVar declares a flag that takes a time or a date. A date means its first moment in UTC.
func timeVar(fs *pflag.FlagSet, value *time.Time, name, usage string) {
	parsed(fs, value, name, usage, "a time such as 2025-01-02T15:04:05Z, or a date", func(text string) (time.Time, error) {
		if t, err := time.Parse(time.DateOnly, text); err == nil {
			return t, nil
		}
		return time.Parse(time.RFC3339, text)
	})
}

// ageVar declares a flag that takes a positive duration, which may be in days.
func ageVar(fs *pflag.FlagSet, value *time.Duration, name, usage string) {
	parsed(fs, value, name, usage, "a time such as 90d or 36h", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if days, found := strings.CutSuffix(text, "d"); found {
			var n uint64
			n, err = strconv.ParseUint(days, 10, 16)
			d = time.Duration(n) * 24 * time.Hour
		}
		if err == nil && d <= 0 {
			err = errors.New("not positive")
		}
		return d, err
	})
}

// number is a flag value of type integer that is not less than the field least.
type number[T int | uint64] struct {
	n     *T
	least T
}

func (f number[T]) Type() string   { return "int" }
func (f number[T]) String() string { return fmt.Sprint(*f.n) }

func (f number[T]) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || int64(T(n)) != n {
		return errors.New("want an integer")
	}
	if n < int64(f.least) {
		return fmt.Errorf("want an integer from %d on", f.least)
	}
	*f.n = T(n)
	return nil
}

func numberVar[T int | uint64](fs *pflag.FlagSet, n *T, least T, name, usage string) {
	fs.Var(number[T]{n, least}, name, usage)
}

// choice is a flag value that must be one of several words.
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

func choose(cmd *cobra.Command, value *string, name, usage string, of ...string) {
	cmd.Flags().Var(choice{value, of}, name, usage)
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp))
}

func declareDryRun(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("dry-run", false, "show what would be done, and write nothing")
}

// would returns done, or its form for a dry run.
func would(done string, dryRun bool) string {
	if dryRun {
		return "would be " + done + "; nothing is written"
	}
	return done
}

// confirm declares --yes and --dry-run for a command whose effect cannot be undone. The command first calls check with
// its arguments, and then requires one of the two flags.
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

// redactHelp is the text about --redact in the help of commands.
const redactHelp = `--redact replaces keys, cards, IBANs, e-mail addresses and telephone numbers by placeholders such as [card 3f9a1c07];
--redact=key,ip selects among key, card, iban, email, phone and ip. Names and postal addresses are not found. With the
same PATCHLOG_REDACT_KEY, itself a secret, a value has the same placeholder in all runs.`

// redaction is the value of the flag --redact. It contains patterns, or is nil if the flag is not set.
type redaction []redact.Pattern

const defaultKinds = "default"

func (f *redaction) declare(cmd *cobra.Command) {
	kinds := []string{}
	for _, p := range redact.All() {
		kinds = append(kinds, p.Name)
	}
	cmd.Flags().Func("redact", "replace secrets, or those of these `KINDS`, by placeholders", func(text string) error {
		if text == defaultKinds {
			*f = redact.Default()
			return nil
		}
		*f = nil
		for kind := range strings.SplitSeq(text, ",") {
			at := slices.Index(kinds, kind)
			if at < 0 {
				return fmt.Errorf("unknown kind %q; one of %s", kind, strings.Join(kinds, ", "))
			}
			*f = append(*f, redact.All()[at])
		}
		return nil
	})
	cmd.Flags().Lookup("redact").NoOptDefVal = defaultKinds
	cmd.RegisterFlagCompletionFunc("redact", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
}

// redactor returns a redactor for the flag's patterns, or nil if the flag is not set.
func (a *app) redactor(f redaction) (*redact.Redactor, error) {
	if f == nil {
		return nil, nil
	}
	return redact.New(redact.Options{Patterns: f, Key: []byte(a.env("PATCHLOG_REDACT_KEY"))})
}
