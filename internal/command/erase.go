package command

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) eraseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "erase [KEY] [EVENT...]",
		Short: "Erase what events say, for good",
		Long: `The events keep their places and become blank. Erased with them are summaries that stand for them,
copies of them, and the same events in forks. Visible summaries are reverted: the next compaction
summarises what is left. A receipt in the log says who erased what, and why:
'patchlog log KEY --type receipt'. An EVENT is the number of a record, an id, or the beginning of an id.

With --everywhere, in place of KEY, --match and --author select events of all sessions. With --user, all events of all sessions of a user are erased, and the values that these
share. State values become null, unless --values says keep. If it is interrupted, it continues when it is
given the same --id. Stop the user's agents first.

This cannot be undone. Afterwards 'patchlog vacuum' returns the room in which the old bytes are.
Exports, backups and copies elsewhere are out of reach.`,
		Example: examples("patchlog erase --everywhere --match 'DE89 3704' --reason 'request 812' --values null --dry-run"),
	}
	e := erasing{}
	e.Options.Author = patchAuthor
	fs := cmd.Flags()
	fs.StringVar(&e.Selection.Author, "author", "", "erase the events by this `AUTHOR`")
	fs.StringVar(&e.Selection.Match, "match", "", "erase the events that have this `TEXT` in what they say, or in state values")
	fs.BoolVar(&e.Selection.IgnoreCase, "ignore-case", false, "let --match find upper and lower case alike")
	fs.BoolVar(&e.Selection.All, "all", false, "erase all events")
	fs.BoolVar(&e.Everywhere, "everywhere", false, "search all sessions of the database, in place of KEY's")
	var user textFlag
	fs.Var(&user, "user", "erase all that the database has of `APP/USER`")
	fs.StringVar(&e.Options.ID, "id", "", "the receipt's `ID`, new unless given; if the log has it, finish what it says")
	values := fs.String("values", string(patch.KeepValues), "`keep` the state values that the events set, and say how many still match; or put null in their place")
	fs.StringVar(&e.Options.Reason, "reason", "", "say `WHY` in the receipt")
	fs.BoolVar(&e.Options.Context, "context", false, "erase also summaries whose summarizer was shown, as context, a summary of erased events")
	resume := fs.Bool("resume", false, "select nothing, and finish an erasing that was interrupted")
	confirmed := declareConfirmation(fs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		selects := len(args) > 1 || e.Selection.Author != "" || e.Selection.Match != "" || e.Selection.All
		if e.Options.Values = patch.Values(*values); user != "" && !fs.Changed("values") {
			e.Options.Values = ""
		}
		switch {
		case user != "" && (len(args) > 0 || selects || *resume):
			return usagef("--user takes all, and goes with neither KEY, a selection nor --resume")
		case e.Everywhere && (user != "" || len(args) > 0 || e.Selection.All || *resume || e.Options.ID != ""):
			return usagef("--everywhere takes --match or --author, and goes with neither KEY, --user, --all, --resume nor --id")
		case user == "" && len(args) == 0 && !e.Everywhere:
			return usagef("KEY is missing, or --everywhere or --user")
		case user == "" && !selects && !*resume:
			return usagef("say what to erase: EVENT, --author, --match or --all")
		case selects && *resume:
			return usagef("--resume selects nothing")
		}
		keyText := string(user) + "/-"
		if e.AllOfUser = user != ""; e.Everywhere {
			keyText = "-/-/-"
		} else if !e.AllOfUser {
			keyText, e.events = args[0], args[1:]
		} else if _, err := store.ParseKey(keyText); err != nil {
			return usagef("--user: %q is not APP/USER, each percent-escaped", user)
		}
		if err := confirmed.check(); err != nil {
			return err
		}
		e.dryRun = confirmed.dryRun
		return a.withSession(cmd.Context(), keyText, writingUnless(e.dryRun), func(s *store.Store, key store.Key) error {
			e.Key = key
			return a.erase(cmd.Context(), s, e)
		})
	}
	return cmd
}

// erasing is a run of erase.
type erasing struct {
	ops.Erase
	events []string // as they were named
	dryRun bool
}

func (a *app) erase(ctx context.Context, s *store.Store, e erasing) error {
	of := e.Key.String()
	switch {
	case e.Everywhere:
		of = "all sessions"
	case e.AllOfUser:
		of = strings.TrimSuffix(of, "/-")
	}
	if len(e.events) > 0 {
		v, err := s.View(ctx, e.Key)
		if err != nil {
			return err
		}
		for _, name := range e.events {
			id, err := ops.EventID(ctx, s, e.Key, v, name)
			if err != nil {
				return err
			}
			e.Selection.EventIDs = append(e.Selection.EventIDs, id)
		}
	}
	do := e.Apply
	if e.dryRun {
		do = e.Preview
	}
	done, err := do(ctx, s)
	if err != nil && len(done.Sessions) == 0 {
		return err
	}
	return errors.Join(a.showErasure(of, done, e.dryRun), err)
}

// erasedDocument is what was erased of a session, as JSON.
type erasedDocument struct {
	Key     string          `json:"key"`
	Receipt string          `json:"receipt,omitempty"`
	Seq     uint64          `json:"seq,omitempty"` // of the receipt
	Events  []erasedElement `json:"events"`
	Initial []string        `json:"initial,omitempty"`

	Reverted []string `json:"reverted,omitempty"` // ids of summaries
	Blank    []string `json:"blank,omitempty"`
}

type erasedElement struct {
	Seq   uint64 `json:"seq"`
	Index *int   `json:"index,omitempty"` // absent for what a patch says besides its events
	ID    string `json:"id"`
	Why   string `json:"why"`
}

// keptValuesDocument says, as JSON, which of the selected state values are kept.
type keptValuesDocument struct {
	Events  int      `json:"events"`
	Initial []string `json:"initial,omitempty"`
	Shared  []string `json:"shared,omitempty"`
}

func keptValuesDocumentOf(k store.KeptValues) *keptValuesDocument {
	if !ops.KeepsValues(k) {
		return nil
	}
	return &keptValuesDocument{k.Events, k.Initial, k.Shared}
}

func keptValuesText(k store.KeptValues) string {
	return present.KeptValues(k) + " --values null erases them."
}

// showErasure shows what was erased of a session, or of a user.
func (a *app) showErasure(of string, e store.Erasure, dryRun bool) error {
	if a.json {
		sessions := []erasedDocument{}
		for _, s := range e.Sessions {
			d := erasedDocument{Key: s.Key.String(), Receipt: s.Receipt.ID(), Seq: s.Receipt.Seq, Events: []erasedElement{}, Initial: s.Initial, Reverted: s.Reverted, Blank: s.Blank}
			for _, event := range s.Events {
				one := erasedElement{Seq: event.Seq, ID: event.ID, Why: event.Why}
				if event.Index >= 0 {
					one.Index = &event.Index
				}
				d.Events = append(d.Events, one)
			}
			sessions = append(sessions, d)
		}
		salt := ""
		if !dryRun && len(sessions) > 0 {
			salt = hex.EncodeToString(e.Salt)
		}
		return a.out.document(struct {
			DryRun     bool                `json:"dryRun"`
			Sessions   []erasedDocument    `json:"sessions"`
			Shared     []string            `json:"shared,omitempty"` // keys of the state that sessions share
			Kept       *keptValuesDocument `json:"kept,omitempty"`
			Salt       string              `json:"salt,omitempty"`
			OutOfReach []string            `json:"outOfReach"`
		}{dryRun, sessions, e.Shared, keptValuesDocumentOf(e.Kept), salt, e.OutOfReach})
	}
	if len(e.Sessions)+len(e.Shared) == 0 {
		if !ops.KeepsValues(e.Kept) {
			return a.out.linef("%s: there is nothing to erase", of)
		}
		return a.out.linef("%s: there is nothing else to erase\n%s", of, keptValuesText(e.Kept))
	}
	for _, s := range e.Sessions {
		did := "erased"
		if dryRun {
			did = "would be erased; nothing is written"
		}
		a.out.linef("%s: %s %s", s.Key, present.Counted(len(s.Events), "event"), did)
		for _, event := range s.Events {
			a.out.linef("  record %d, id %s: %s", event.Seq, present.Printable(event.ID), event.Why)
		}
		for _, name := range s.Initial {
			a.out.linef("  initial state, key %s: null", present.Printable(name))
		}
		for _, id := range s.Reverted {
			a.out.linef("  summary %s: reverted, and what is left behind it is visible", present.Printable(id))
		}
		for _, id := range s.Blank {
			a.out.linef("  summary %s: visible, and blank", present.Printable(id))
		}
		if s.Receipt.Patch != nil {
			a.out.linef("  receipt: record %d, id %s", s.Receipt.Seq, present.Printable(s.Receipt.ID()))
		}
	}
	for _, name := range e.Shared {
		a.out.linef("shared state, key %s: null", present.Printable(name))
	}
	if ops.KeepsValues(e.Kept) {
		a.out.linef("%s", keptValuesText(e.Kept))
	}
	if !dryRun && e.Salt != nil {
		a.out.linef("salt of the digest, which is nowhere stored: %x", e.Salt)
	}
	a.out.linef("out of reach:")
	for _, text := range e.OutOfReach {
		a.out.linef("  %s", text)
	}
	return nil
}
