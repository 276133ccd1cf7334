package command

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// allowErase is the environment variable without which nothing is erased: that someone may
// read and write sessions is not enough.
const allowErase = "PATCHLOG_ALLOW_ERASE"

// eraseFlags are what `erase` is told.
type eraseFlags struct {
	ids             []string
	author, match   string
	ignoreCase, all bool
	values, id      string
	reason, by      string
	user            string
	resume, dryRun  bool
	remake, context bool
	compactFlags    // who makes summaries anew
}

func (a *app) eraseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "erase [KEY]",
		Short: "Erase what events say, for good",
		Long: `The events stay where they are, blank. With them go summaries that stand for them, copies of
them, and the same events in forks. With --remake-summaries the summaries are then made anew of what is left:
gemini is asked where an API key is in GOOGLE_API_KEY or GEMINI_API_KEY; else extractive picks
sentences, offline. If one cannot be had it stays blank, and --resume --remake-summaries tries
again. A receipt in the log says so, and "patchlog receipts" shows
it. It cannot be taken back. Look at --dry-run first.

With --user, in place of KEY, all events of all sessions of a user go, and the values that these
share. State values become null, unless --values says keep. Cut short, it goes on if it is given
the same --id. Let the user's agents end first.

It is refused unless the environment variable ` + allowErase + ` is "yes". Afterwards "patchlog
vacuum" gives the room back in which the old bytes are. What was exported, backed up or sent
elsewhere is out of reach.`,
		Example: examples(
			"patchlog erase shop/ada/4711 --event-id e17 --dry-run",
			"patchlog erase shop/ada/4711 --match 'DE89 3704' --reason 'request 812' --values null",
			"patchlog erase shop/ada/4711 --author user --remake-summaries --summarizer extractive",
			"patchlog erase shop/ada/4711 --resume",
			"patchlog erase --user shop/ada --id 'request 813' --dry-run",
		),
	}
	var f eraseFlags
	fs := cmd.Flags()
	fs.StringArrayVar(&f.ids, "event-id", nil, "erase the event or patch with this `ID`; may be given several times")
	fs.StringVar(&f.author, "author", "", "erase the events by this `AUTHOR`")
	fs.StringVar(&f.match, "match", "", "erase the events that have this `TEXT` in what they say, or in state values")
	fs.BoolVar(&f.ignoreCase, "ignore-case", false, "let --match find upper and lower case alike")
	fs.BoolVar(&f.all, "all", false, "erase all events")
	fs.Var((*filled)(&f.user), "user", "erase all that the database has of `APP/USER`")
	fs.StringVar(&f.id, "id", "", "the receipt's `ID`, new unless given; if the log has it, finish what it says")
	fs.StringVar(&f.values, "values", string(patch.KeepValues), "`keep` the state values that the events set, and say how many still match; or put null in their place")
	fs.StringVar(&f.reason, "reason", "", "say `WHY` in the receipt")
	fs.StringVar(&f.by, "by", patchAuthor, "say in the receipt `WHO` erases")
	f.declareSummarizer(cmd)
	fs.BoolVar(&f.remake, "remake-summaries", false, "make summaries of erased events anew, of what is left")
	fs.BoolVar(&f.context, "context", false, "erase summaries too whose summarizer was shown, as context, a summary of erased events")
	fs.BoolVar(&f.resume, "resume", false, "select nothing, and finish what was cut short")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would be erased, and write nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		selects := len(f.ids) > 0 || f.author != "" || f.match != "" || f.all
		if f.user != "" && !fs.Changed("values") {
			f.values = ""
		}
		switch {
		case f.user != "" && (len(args) > 0 || selects || f.resume):
			return usagef("--user takes all, and goes with neither KEY, a selection nor --resume")
		case f.user == "" && len(args) == 0:
			return usagef("KEY is missing, or --user")
		case f.user == "" && !selects && !f.resume:
			return usagef("say what to erase: --event-id, --author, --match or --all")
		case selects && f.resume:
			return usagef("--resume selects nothing")
		case !f.remake && f.summarizer+f.model != "":
			return usagef("--summarizer and --model go with --remake-summaries")
		}
		if err := f.check(); err != nil {
			return err
		}
		return a.erase(cmd.Context(), strings.Join(args, ""), f)
	}
	return cmd
}

func (a *app) erase(ctx context.Context, keyText string, f eraseFlags) error {
	if !f.dryRun {
		if err := a.mayErase("--dry-run is allowed"); err != nil {
			return err
		}
	}
	sel := store.EraseSelection{EventIDs: f.ids, Author: f.author, Match: f.match, IgnoreCase: f.ignoreCase, All: f.all}
	opts := store.EraseOptions{ID: f.id, Author: f.by, Reason: f.reason, Values: patch.Values(f.values), Context: f.context}
	if f.remake {
		opts.Summaries = store.RemakeSummaries
		if _, err := a.useSummarizer(ctx, &f.compactFlags); err != nil {
			return err
		}
		var err error
		if opts.Resummarise, err = compaction.Resummariser(f.cfg); err != nil {
			return err
		}
	}
	show := func(of string, done store.Erasure, err error) error {
		if err != nil && !errors.Is(err, store.ErrNotRemade) {
			return err
		}
		return errors.Join(a.showErasure(of, done, f.dryRun), err)
	}
	if f.user != "" {
		key, err := parseKey(f.user + "/-")
		if err != nil {
			return usagef("--user: %q is not APP/USER, each percent-escaped", f.user)
		}
		return a.withStore(ctx, writingUnless(f.dryRun), func(s *store.Store) error {
			do := s.EraseUser
			if f.dryRun {
				do = s.PlanEraseUser
			}
			done, err := do(ctx, key.App, key.User, opts)
			return show(f.user, done, err)
		})
	}
	return a.withSession(ctx, keyText, writingUnless(f.dryRun), func(s *store.Store, key store.Key) error {
		do := s.Erase
		if f.dryRun {
			do = s.PlanErase
		}
		done, err := do(ctx, key, sel, opts)
		return show(key.String(), done, err)
	})
}

// mayErase returns an error unless erasing is allowed, and then says what is allowed besides.
func (a *app) mayErase(besides string) error {
	if a.env(allowErase) == "yes" {
		return nil
	}
	return fmt.Errorf("erasing is not allowed here: set the environment variable %s to yes; %s", allowErase, besides)
}

// erasedDocument is what was erased of a session, as JSON.
type erasedDocument struct {
	Key     string          `json:"key"`
	Receipt string          `json:"receipt,omitempty"`
	Seq     uint64          `json:"seq,omitempty"` // of the receipt
	Events  []erasedElement `json:"events"`
	Initial []string        `json:"initial,omitempty"`
	Remade  []string        `json:"remade,omitempty"` // summaries that were made anew, or would be
	Blank   []string        `json:"blank,omitempty"`  // those that were to be and are blank
}

type erasedElement struct {
	Seq   uint64 `json:"seq"`
	Index *int   `json:"index,omitempty"` // absent for what a patch says besides its events
	ID    string `json:"id"`
	Why   string `json:"why"`
}

// keptDocument says, as JSON, which of the selected state values are kept.
type keptDocument struct {
	Events  int      `json:"events"`
	Initial []string `json:"initial,omitempty"`
	Shared  []string `json:"shared,omitempty"`
}

func keptDocumentOf(k store.KeptValues) *keptDocument {
	if k.IsZero() {
		return nil
	}
	return &keptDocument{k.Events, k.Initial, k.Shared}
}

func keptText(k store.KeptValues) string {
	return present.KeptValues(k) + " --values null erases them."
}

// showErasure shows what was erased of a session, or of a user.
func (a *app) showErasure(of string, e store.Erasure, dryRun bool) error {
	if a.json {
		sessions := []erasedDocument{}
		for _, s := range e.Sessions {
			d := erasedDocument{Key: s.Key.String(), Receipt: s.Receipt.ID(), Seq: s.Receipt.Seq, Events: []erasedElement{}, Initial: s.Initial, Remade: s.Remade, Blank: s.Blank}
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
			DryRun     bool             `json:"dryRun"`
			Sessions   []erasedDocument `json:"sessions"`
			Shared     []string         `json:"shared,omitempty"` // keys of the state that sessions share
			Kept       *keptDocument    `json:"kept,omitempty"`
			Salt       string           `json:"salt,omitempty"`
			OutOfReach []string         `json:"outOfReach"`
		}{dryRun, sessions, e.Shared, keptDocumentOf(e.Kept), salt, e.OutOfReach})
	}
	if len(e.Sessions)+len(e.Shared) == 0 {
		if e.Kept.IsZero() {
			return a.out.linef("%s: there is nothing to erase", of)
		}
		return a.out.linef("%s: there is nothing else to erase\n%s", of, keptText(e.Kept))
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
		for _, id := range s.Remade {
			text := "made anew of what is left"
			if dryRun {
				text = "would be " + text
			}
			a.out.linef("  summary %s: %s", present.Printable(id), text)
		}
		for _, id := range s.Blank {
			a.out.linef("  summary %s: stays blank", present.Printable(id))
		}
		if s.Receipt.Patch != nil {
			a.out.linef("  receipt: record %d, id %s", s.Receipt.Seq, present.Printable(s.Receipt.ID()))
		}
	}
	for _, name := range e.Shared {
		a.out.linef("shared state, key %s: null", present.Printable(name))
	}
	if !e.Kept.IsZero() {
		a.out.linef("%s", keptText(e.Kept))
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

func (a *app) receiptsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "receipts KEY",
		Short:   "Show what was erased of a session, by whom and why",
		Example: examples("patchlog receipts shop/ada/4711"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSession(cmd.Context(), args[0], Reading, func(s *store.Store, key store.Key) error {
			receipts, err := s.Receipts(cmd.Context(), key)
			if err != nil {
				return err
			}
			for _, r := range receipts {
				if a.json {
					if err := a.out.document(r); err != nil {
						return err
					}
					continue
				}
				a.out.linef("record %d, id %s, by %s, %s", r.Seq, present.Printable(r.ID()), present.Printable(r.Patch.Author()), r.Patch.Timestamp().Format("2006-01-02 15:04:05Z"))
				if err := a.out.linef("  %s", present.PatchText(r.Patch)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}
