package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) eraseCommand() *cobra.Command {
	cmd := command(`erase [KEY] [EVENT...]
Erase the content of events, for good

The events keep their places and become blank. Their copies, the same events in forks, and summaries of them are erased,
too. Visible summaries are reverted, so that the next compaction summarises what is left. EVENT is the number of a record,
an id, or the beginning of an id. The log gets a receipt with author and reason: 'patchlog log KEY --type receipt'.

State values that the erased events set become null. With --values keep, they stay, and the number of values that still
match is reported.

With --all-sessions in place of KEY, --match and --by select events of all sessions. --user erases all events of a user's
sessions, and the values that these sessions share; stop the user's agents first. To continue an interrupted erasure, use
the same --id.

This cannot be undone. The file has the old bytes until 'patchlog vacuum' removes them. Exports, backups and other copies
are not erased.

$ patchlog erase --all-sessions --match 'DE89 3704' --dry-run`)
	e := erasing{}
	a.declareAuthor(cmd, &e.Options.Author)
	fs := cmd.Flags()
	fs.StringVar(&e.Selection.Author, "by", "", "erase events by this `AUTHOR`")
	fs.StringVar(&e.Selection.Match, "match", "", "erase events with this `TEXT` in their content or state values")
	fs.BoolVar(&e.Selection.IgnoreCase, "ignore-case", false, "let --match ignore case")
	fs.BoolVar(&e.Selection.All, "all", false, "erase all events")
	fs.BoolVar(&e.Everywhere, "all-sessions", false, "select events of all sessions, in place of KEY")
	user := ""
	textVar(fs, &user, "user", "erase everything of `APP/USER`")
	fs.StringVar(&e.Options.ID, "id", "", "the erasure's `ID` (default a new one); an interrupted erasure with this id is finished")
	e.Options.Values = patch.NullValues
	choose(cmd, (*string)(&e.Options.Values), "values", "replace the state values that the events set by null, or keep them", string(patch.KeepValues), string(patch.NullValues))
	fs.StringVar(&e.Options.Reason, "reason", "", "the `REASON` for the receipt")
	fs.BoolVar(&e.Options.Context, "context", false, "also erase summaries whose summarizer read a summary of erased events as context")
	resume := fs.Bool("resume", false, "select nothing, and finish interrupted erasures, in forks too")
	dryRun := confirm(cmd, func(args []string) error {
		selects := len(args) > 1 || e.Selection.Author != "" || e.Selection.Match != "" || e.Selection.All
		switch {
		case user != "" && (len(args) > 0 || selects || *resume):
			return usagef("--user takes all, and goes with neither KEY, a selection nor --resume")
		case e.Everywhere && (user != "" || len(args) > 0 || e.Selection.All || *resume || e.Options.ID != ""):
			return usagef("--all-sessions takes --match or --by, and goes with neither KEY, --user, --all, --resume nor --id")
		case user == "" && len(args) == 0 && !e.Everywhere:
			return usagef("KEY is missing, or --all-sessions or --user")
		case user == "" && !selects && !*resume:
			return usagef("say what to erase: EVENT, --by, --match or --all")
		case selects && *resume:
			return usagef("--resume selects nothing")
		}
		var err error
		switch {
		case e.Everywhere:
		case user != "":
			e.AllOfUser = true
			if e.Key, err = store.ParseKey(user + "/-"); err != nil {
				return usagef("--user: %q is not APP/USER, each percent-escaped", user)
			}
		default:
			e.events = args[1:]
			e.Key, err = parseKey("KEY", args[0])
		}
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e.Options.DryRun = *dryRun
		return a.withStore(cmd.Context(), writingUnless(*dryRun), func(s *store.Store) error {
			return suggestSession(cmd.Context(), s, e.Key, a.erase(cmd.Context(), s, e))
		})
	}
	return cmd
}

type erasing struct {
	ops.Erase
	events []string // the names of events, as the user wrote them
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
	done, err := e.Apply(ctx, s)
	if err != nil && len(done.Sessions) == 0 {
		return err
	}
	return errors.Join(a.showErasure(of, done, e.Options.DryRun), err)
}

func remainingText(n int) string {
	return present.RemainingMatchesText(n) + " Without --values keep they become null."
}

func (a *app) showErasure(of string, e store.Erasure, dryRun bool) error {
	if a.json {
		return a.out.Document(struct {
			DryRun bool `json:"dryRun"`
			store.Erasure
		}{dryRun, e})
	}
	if len(e.Sessions)+len(e.Shared) == 0 {
		if e.RemainingMatches == 0 {
			return a.out.Linef("%s: there is nothing to erase", of)
		}
		return a.out.Linef("%s: there is nothing else to erase\n%s", of, remainingText(e.RemainingMatches))
	}
	for _, s := range e.Sessions {
		a.out.Linef("%s: %s %s", s.Key, countErased(s.Events), would("erased", dryRun))
		list(a, s.Events, func(event store.ErasedEvent) string {
			return fmt.Sprintf("record %d, id %s: %s", event.Seq, present.Printable(event.ID), event.Why)
		})
		list(a, s.Initial, func(name string) string { return "initial state, key " + present.Printable(name) + ": null" })
		list(a, s.Reverted, func(id string) string {
			return "summary " + present.Printable(id) + ": reverted, and what is left behind it is visible"
		})
		list(a, s.Blank, func(id string) string { return "summary " + present.Printable(id) + ": visible, and blank" })
		if s.Receipt.Patch != nil {
			a.out.Linef("  receipt: record %d, id %s", s.Receipt.Seq, present.Printable(s.Receipt.ID()))
		}
	}
	for _, name := range e.Shared {
		a.out.Linef("shared state, key %s: null", present.Printable(name))
	}
	if e.RemainingMatches > 0 {
		a.out.Linef("%s", remainingText(e.RemainingMatches))
	}
	a.out.Linef("out of reach:")
	for _, text := range e.OutOfReach {
		a.out.Linef("  %s", text)
	}
	return nil
}

// mostErased limits the length of each list of one session in the receipt.
const mostErased = 20

// list writes a line for each of the first mostErased items. It then writes the number of remaining items.
func list[T any](a *app, items []T, text func(T) string) {
	for _, item := range items[:min(len(items), mostErased)] {
		a.out.Linef("  %s", text(item))
	}
	if more := len(items) - mostErased; more > 0 {
		a.out.Linef("  and %d more; --json lists all", more)
	}
}

// countErased describes how many events, summaries and other contents of patches, such as reasons, were erased.
func countErased(events []store.ErasedEvent) string {
	count := map[string]int{}
	for _, event := range events {
		switch {
		case event.Index < 0:
			count["other record"]++
		case event.Summary:
			count["summary"]++
		default:
			count["event"]++
		}
	}
	var texts []string
	for _, thing := range []string{"event", "summary", "other record"} {
		if count[thing] > 0 {
			texts = append(texts, present.Counted(count[thing], thing))
		}
	}
	if last := len(texts) - 1; last > 0 {
		texts = []string{strings.Join(texts[:last], ", "), texts[last]}
	}
	return cmp.Or(strings.Join(texts, " and "), "0 events")
}
