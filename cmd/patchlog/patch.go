package main

import (
	"context"
	"flag"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

const patchFlagsUsage = "[--keep-state|--drop-state] [--base SEQ] [--allow-orphans] [--dry-run]"

const patchConventions = `The log keeps what the patch hides. Without --base, indices count from the log as it is
now; with --base SEQ, the patch is refused if a patch above SEQ has been logged since. A
patch that would split a tool call from its result is refused, and the message names the
smallest span around it that would pass.`

func patchCommands() []command {
	return []command{{
		name:     "patch splice",
		operands: []string{"KEY"},
		flags:    "--start N --count N [--replacement FILE] " + patchFlagsUsage,
		short:    "Replace visible events by others, or by none",
		long: patchConventions + `

What the hidden events set in the state no longer counts, unless --keep-state is given.`,
		examples: []string{
			"patchlog patch splice shop/ada/4711 --start 25 --count 24 --dry-run",
			"patchlog patch splice shop/ada/4711 --start 25 --count 24 --replacement note.jsonl --keep-state",
			`echo '{"author":"agent","content":{"role":"model","parts":[{"text":"…"}]}}' |
    patchlog patch splice shop/ada/4711 --start 3 --count 2 --replacement -`,
		},
		setup: func(fs *flag.FlagSet) action {
			var span spanFlags
			var rules patchFlags
			span.declare(fs)
			replacement := fs.String("replacement", "", "a `FILE` with the events to put in, one JSON object a line; - is standard input")
			rules.declare(fs)
			return func(ctx context.Context, a *app, operands []string) error {
				if err := span.check(); err != nil {
					return err
				}
				var events []*patch.Event
				if *replacement != "" {
					var err error
					if events, err = a.replacement(ctx, *replacement); err != nil {
						return err
					}
				}
				return a.patch(ctx, operands[0], rules, func(fold.View) (*patch.PatchEvent, error) {
					return patch.NewSplice(span.start.n, span.count.n, events...), nil
				})
			}
		},
	}, {
		name:     "patch truncate-before",
		operands: []string{"KEY"},
		flags:    "--event-id ID " + patchFlagsUsage,
		short:    "Hide all events before a visible one",
		long: patchConventions + `

What the hidden events set in the state no longer counts, unless --keep-state is given.`,
		examples: []string{
			"patchlog patch truncate-before shop/ada/4711 --event-id e17 --dry-run",
			"patchlog patch truncate-before shop/ada/4711 --event-id e17 --keep-state",
		},
		setup: func(fs *flag.FlagSet) action {
			var rules patchFlags
			eventID := fs.String("event-id", "", "the `ID` of the event that becomes the first visible one")
			rules.declare(fs)
			return func(ctx context.Context, a *app, operands []string) error {
				if *eventID == "" {
					return usagef("--event-id is missing")
				}
				return a.patch(ctx, operands[0], rules, func(fold.View) (*patch.PatchEvent, error) {
					return patch.NewTruncateBefore(*eventID), nil
				})
			}
		},
	}, {
		name:     "patch summarise",
		operands: []string{"KEY"},
		flags:    "--start N --count N --summary TEXT " + patchFlagsUsage,
		short:    "Replace visible events by a summary",
		long: patchConventions + `

What the hidden events set in the state still counts, unless --drop-state is given.`,
		examples: []string{
			"patchlog patch summarise shop/ada/4711 --start 0 --count 20 --summary 'Ada ordered a lamp; order 4711.'",
			"patchlog patch summarise shop/ada/4711 --start 0 --count 20 --summary \"$(cat summary.txt)\" --base 62",
		},
		setup: func(fs *flag.FlagSet) action {
			var span spanFlags
			var rules patchFlags
			span.declare(fs)
			text := fs.String("summary", "", "the `TEXT` of the summary")
			rules.declare(fs)
			return func(ctx context.Context, a *app, operands []string) error {
				if err := span.check(); err != nil {
					return err
				}
				if *text == "" {
					return usagef("--summary is missing")
				}
				return a.patch(ctx, operands[0], rules, func(v fold.View) (*patch.PatchEvent, error) {
					return a.summarise(v, span.start.n, span.count.n, *text)
				})
			}
		},
	}}
}

// spanFlags say which visible events a patch takes out.
type spanFlags struct {
	start, count number
}

func (f *spanFlags) declare(fs *flag.FlagSet) {
	fs.Var(&f.start, "start", "hide from the event with index `N` on, counted from 0")
	fs.Var(&f.count, "count", "hide `N` events")
}

func (f *spanFlags) check() error {
	switch {
	case !f.start.given:
		return usagef("--start is missing")
	case !f.count.given:
		return usagef("--count is missing")
	}
	return nil
}

// patchFlags are the flags that all patches have.
type patchFlags struct {
	keep, drop   bool
	base         seq
	allowOrphans bool
	dryRun       bool
}

func (f *patchFlags) declare(fs *flag.FlagSet) {
	fs.BoolVar(&f.keep, "keep-state", false, "what the hidden events set in the state still counts")
	fs.BoolVar(&f.drop, "drop-state", false, "what the hidden events set in the state no longer counts")
	fs.Var(&f.base, "base", "refuse if a patch above `SEQ` has been logged, which you have not seen")
	fs.BoolVar(&f.allowOrphans, "allow-orphans", false, "accept split tool calls")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would change, and write nothing")
}

// The author of patches made by hand.
const patchAuthor = "patchlog"

// patch makes a patch from the newest view, and applies it or shows what it would do.
func (a *app) patch(ctx context.Context, keyText string, rules patchFlags, build func(fold.View) (*patch.PatchEvent, error)) error {
	if rules.keep && rules.drop {
		return usagef("--keep-state and --drop-state exclude each other")
	}
	return a.withSession(keyText, rules.dryRun, func(s *store.Store, key store.Key) error {
		session, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		p, err := build(session.View)
		if err != nil {
			return err
		}
		p = p.WithAuthor(patchAuthor)
		switch {
		case rules.keep:
			p = p.WithState(patch.Keep)
		case rules.drop:
			p = p.WithState(patch.Drop)
		}
		if rules.base.given {
			p = p.WithBase(rules.base.n)
		}
		opts := store.PatchOptions{AsOfNow: true, AllowOrphans: rules.allowOrphans}
		if rules.dryRun {
			preview, err := s.Preview(ctx, key, opts, p)
			if err != nil {
				return err
			}
			return a.showPreview(key, p, session.View, preview)
		}
		done, err := s.ApplyPatch(ctx, key, opts, p)
		if err != nil {
			return err
		}
		return a.showPatched(key, session.View, done)
	})
}

// showPatched says what a patch did.
func (a *app) showPatched(key store.Key, before fold.View, done store.Committed) error {
	r, visible := done.Records[0], done.View.Len()
	d := before.Diff(done.View)
	hidden, added := len(d.Removed), len(d.Added)
	if a.json {
		return a.out.document(struct {
			Key     string     `json:"key"`
			Seq     uint64     `json:"seq"`
			ID      string     `json:"id"`
			Type    patch.Type `json:"type"`
			Hidden  int        `json:"hidden"`
			Added   int        `json:"added"`
			Visible int        `json:"visible"`
		}{key.String(), r.Seq, r.ID(), r.Patch.Type(), hidden, added, visible})
	}
	return a.out.linef("%s: %s logged as record %d, id %s: %s hidden, %s added; %s now",
		key, r.Patch.Type(), r.Seq, printable(r.ID()), counted(hidden, "event"), grouped(added), counted(visible, "visible event"))
}
