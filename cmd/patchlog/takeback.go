package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// takeBackCommands are the commands that take patches and turns back, or go another way.
func takeBackCommands() []command {
	return []command{{
		name:     "revert",
		operands: []string{"KEY"},
		flags:    "--patch-id ID [--base SEQ] [--allow-orphans] [--dry-run]",
		short:    "Take a patch back",
		long: `What the patch hid is visible again, in the place of what it put in, and what that set in
the state counts again. If a later patch stands on it, the message names the one to revert
first. Patches that compaction logged together are reverted together. A revert is on record
as any patch, and can be reverted itself. The audit shows the ids of patches.`,
		examples: []string{
			"patchlog revert shop/ada/4711 --patch-id p7 --dry-run",
			"patchlog revert shop/ada/4711 --patch-id p7 --base 62",
		},
		setup: func(fs *flag.FlagSet) action {
			var rules patchFlags
			id := fs.String("patch-id", "", "the `ID` of the patch to take back")
			fs.Var(&rules.base, "base", "refuse if a patch above `SEQ` has been logged, which you have not seen")
			fs.BoolVar(&rules.allowOrphans, "allow-orphans", false, "accept split tool calls")
			fs.BoolVar(&rules.dryRun, "dry-run", false, "show what would change, and write nothing")
			return func(ctx context.Context, a *app, operands []string) error {
				if *id == "" {
					return usagef("--patch-id is missing")
				}
				return a.revert(ctx, operands[0], rules, *id)
			}
		},
	}, {
		name:     "rewind",
		operands: []string{"KEY"},
		flags:    "--invocation ID [--dry-run]",
		short:    "Go back to before an invocation",
		long: `What came from the invocation's first event on is hidden, and what it set in the state no
longer counts. Summaries of older events stay; one that also stands for newer ones is taken
back. All patches that this takes are logged together. Reverting them, the last one first,
takes the rewind back. Values that sessions share (app: and user: keys) stay.`,
		examples: []string{
			"patchlog rewind shop/ada/4711 --invocation inv7 --dry-run",
			"patchlog rewind shop/ada/4711 --invocation inv7",
		},
		setup: func(fs *flag.FlagSet) action {
			invocation := fs.String("invocation", "", "the `ID` of the invocation to go back to")
			dryRun := fs.Bool("dry-run", false, "show what would change, and write nothing")
			return func(ctx context.Context, a *app, operands []string) error {
				if *invocation == "" {
					return usagef("--invocation is missing")
				}
				return a.rewind(ctx, operands[0], *invocation, *dryRun)
			}
		},
	}, {
		name:     "fork",
		operands: []string{"KEY", "NEWKEY"},
		flags:    "[--at SEQ] [--dry-run]",
		short:    "Begin a new session with another one's log",
		long: `The new session has the other's initial state and its records up to --at, or all of them.
From there on each goes its own way. Values that sessions share (app: and user: keys) are
not copied.`,
		examples: []string{
			"patchlog fork shop/ada/4711 shop/ada/what-if",
			"patchlog fork shop/ada/4711 shop/ada/what-if --at 61",
		},
		setup: func(fs *flag.FlagSet) action {
			var at seq
			fs.Var(&at, "at", "up to the record with this `SEQ`")
			dryRun := fs.Bool("dry-run", false, "show what the new session would be, and write nothing")
			return func(ctx context.Context, a *app, operands []string) error {
				return a.fork(ctx, operands[0], operands[1], at, *dryRun)
			}
		},
	}, {
		name:     "diff",
		operands: []string{"KEY"},
		flags:    "--from SEQ [--to SEQ]",
		short:    "Show how a session differs between two records",
		long: `Compared is what a model sees after the one record and after the other: events with - are
in the first view only, those with + in the second, each with its index there.`,
		examples: []string{
			"patchlog diff shop/ada/4711 --from 61 --to 62",
			"patchlog diff shop/ada/4711 --from 61            # up to now",
		},
		setup: func(fs *flag.FlagSet) action {
			var from, to seq
			fs.Var(&from, "from", "compare as it stood after the record with this `SEQ`")
			fs.Var(&to, "to", "with how it stood after the record with this `SEQ`; the last one if left out")
			return func(ctx context.Context, a *app, operands []string) error {
				if !from.given {
					return usagef("--from is missing")
				}
				return a.diff(ctx, operands[0], from, to)
			}
		},
	}}
}

// revert takes a patch back, and with it the patches that belong to the same window of
// compaction.
func (a *app) revert(ctx context.Context, keyText string, rules patchFlags, id string) error {
	var reverts []*patch.PatchEvent
	err := a.withSession(keyText, reads, func(s *store.Store, key store.Key) (err error) {
		reverts, err = compaction.TakeBack(s.RawEvents(ctx, key, 1), id)
		return err
	})
	if err != nil {
		return err
	}
	if len(reverts) == 1 {
		return a.patch(ctx, keyText, rules, func(fold.View) (*patch.PatchEvent, error) { return reverts[0], nil })
	}
	return a.withSession(keyText, rules.dryRun, func(s *store.Store, key store.Key) error {
		before, err := s.View(ctx, key)
		if err != nil {
			return err
		}
		base := before.PatchSeq()
		if rules.base.given {
			base = rules.base.n
		}
		after := before
		for i, p := range reverts {
			reverts[i] = p.WithAuthor(patchAuthor).WithBase(base)
			if err := after.Check(reverts[i], fold.CheckOptions{AllowOrphans: rules.allowOrphans, AnyBase: i > 0}); err != nil {
				return err
			}
			if after, err = after.Apply(patch.Record{Seq: after.Seq() + 1, Patch: reverts[i]}); err != nil {
				return err
			}
		}
		head := fmt.Sprintf("%s: dry run of %s, nothing is written", key, counted(len(reverts), "revert"))
		if !rules.dryRun {
			if after, err = s.ApplyOn(ctx, key, before, fold.CheckOptions{AllowOrphans: rules.allowOrphans}, reverts...); err != nil {
				return err
			}
			head = fmt.Sprintf("%s: taken back with %s, up to record %d", key, counted(len(reverts), "revert"), after.Seq())
		}
		return a.showDifference(head, before, after)
	})
}

func (a *app) rewind(ctx context.Context, keyText, invocation string, dryRun bool) error {
	return a.withSession(keyText, dryRun, func(s *store.Store, key store.Key) error {
		opts := store.RewindOptions{Author: patchAuthor}
		would, err := s.PreviewRewind(ctx, key, opts, invocation)
		if err != nil {
			return err
		}
		if dryRun {
			return a.showDifference(fmt.Sprintf("%s: dry run of rewind by %s, nothing is written", key, counted(len(would.Patches), "record")), would.Before, would.View)
		}
		opts.On = would.Before
		done, err := s.Rewind(ctx, key, opts, invocation)
		if err != nil {
			return err
		}
		d := would.Before.Diff(done.View)
		if a.json {
			ids := []string{}
			for _, r := range done.Records {
				ids = append(ids, r.ID())
			}
			return a.out.document(struct {
				Key     string   `json:"key"`
				Seq     uint64   `json:"seq"`
				IDs     []string `json:"ids"`
				Hidden  int      `json:"hidden"`
				Added   int      `json:"added"`
				Visible int      `json:"visible"`
			}{key.String(), done.View.Seq(), ids, len(d.Removed), len(d.Added), done.View.Len()})
		}
		a.out.linef("%s: rewound to before invocation %s: %s hidden, %s added; %s now",
			key, printable(invocation), counted(len(d.Removed), "event"), grouped(len(d.Added)), counted(done.View.Len(), "visible event"))
		for _, r := range done.Records {
			a.out.linef("%s logged as record %d, id %s", r.Patch.Type(), r.Seq, printable(r.ID()))
		}
		return nil
	})
}

func (a *app) fork(ctx context.Context, keyText, newText string, at seq, dryRun bool) error {
	newKey, err := parseKey(newText)
	if err != nil {
		return err
	}
	return a.withSession(keyText, dryRun, func(s *store.Store, key store.Key) error {
		var opts store.ForkOptions
		if at.given {
			opts.At = &at.n
		}
		v, done := fold.View{}, "would be forked"
		if dryRun {
			switch _, err := s.Info(ctx, newKey); {
			case err == nil:
				return fmt.Errorf("session %s: %w", newKey, store.ErrExists)
			case !errors.Is(err, store.ErrNotFound):
				return err
			}
			if v, err = viewAt(ctx, s, key, at); err != nil {
				return err
			}
		} else {
			session, err := s.Fork(ctx, key, newKey, opts)
			if err != nil {
				return err
			}
			v, done = session.View, "forked"
		}
		if a.json {
			return a.out.document(struct {
				Key     string `json:"key"`
				From    string `json:"from"`
				Seq     uint64 `json:"seq"`
				Visible int    `json:"visible"`
				DryRun  bool   `json:"dryRun"`
			}{newKey.String(), key.String(), v.Seq(), v.Len(), dryRun})
		}
		return a.out.linef("%s: %s from %s with %s; %s", newKey, done, key, counted(v.Seq(), "record"), counted(v.Len(), "visible event"))
	})
}

func (a *app) diff(ctx context.Context, keyText string, from, to seq) error {
	return a.withSession(keyText, reads, func(s *store.Store, key store.Key) error {
		before, err := s.ViewAt(ctx, key, from.n)
		if err != nil {
			return err
		}
		after, err := viewAt(ctx, s, key, to)
		if err != nil {
			return err
		}
		return a.showDifference(fmt.Sprintf("%s: from record %d to record %d", key, before.Seq(), after.Seq()), before, after)
	})
}

// showDifference shows how two views of a session differ.
func (a *app) showDifference(head string, before, after fold.View) error {
	events, d := before.Diff(after), differenceOf(before, after)
	if a.json {
		return a.out.document(d.with(visibleLines(events.Removed), visibleLines(events.Added)))
	}
	a.out.line(head)
	t := newTable("", "index", "id", "author", "event")
	t.right[1] = true
	for _, side := range []struct {
		mark   string
		style  style
		view   fold.View
		events []fold.Visible
	}{{"-", red, before, events.Removed}, {"+", green, after, events.Added}} {
		for _, e := range side.events {
			cells := append([]cell{{side.mark, side.style}, {grouped(e.Index), side.style}}, eventCells(e.Event, side.view.IsSummary(e.Index))...)
			for i := range cells {
				cells[i].style = side.style
			}
			t.add(cells...)
		}
	}
	if len(t.rows) == 0 {
		a.out.line("the same events are visible")
	} else if err := a.out.table(t); err != nil {
		return err
	}
	return a.out.difference(before, d)
}

func visibleLines(events []fold.Visible) []logLine {
	lines := make([]logLine, len(events))
	for i, e := range events {
		lines[i] = logLine{Index: e.Index, Event: e.Event}
	}
	return lines
}
