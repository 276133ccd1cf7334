package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/patch/redact"
)

// redactHelp is what commands with the flag say of it.
const redactHelp = `With --redact, placeholders such as [card 3f9a1c07] replace keys, cards, IBANs, e-mail addresses and telephone
numbers; --redact=key,ip chooses among key, card, iban, email, phone and ip. Names and postal addresses are not
found. The same secret has the same placeholder in all runs with the same PATCHLOG_REDACT_KEY, itself a secret.`

// redaction is the flag --redact: what is redacted.
type redaction struct{ patterns []redact.Pattern }

const defaultKinds = "default"

func (f *redaction) declare(cmd *cobra.Command) {
	cmd.Flags().VarPF(f, "redact", "", "replace secrets by placeholders, or those of these `KINDS`").NoOptDefVal = defaultKinds
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

// kinds are the names of all patterns.
func kinds() (names []string) {
	for _, p := range redact.All() {
		names = append(names, p.Name)
	}
	return names
}

// redactor returns what the flag asks for, or nil.
func (a *app) redactor(f redaction) (*redact.Redactor, error) {
	if f.patterns == nil {
		return nil, nil
	}
	return redact.New(redact.Options{Patterns: f.patterns, Key: []byte(a.env("PATCHLOG_REDACT_KEY"))})
}
