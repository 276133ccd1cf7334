package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// takeBackCommands are the commands that take patches and turns back, or go another way.
func (a *app) revertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revert KEY",
		Short: "Take a patch back",
		Long: `What the patch hid is visible again, in the place of what it put in, and what that set in
the state counts again. If a later patch stands on it, the message names the one to revert
first. Patches that compaction logged together are reverted together. A revert is on record
as any patch, and can be reverted itself. The audit shows the ids of patches.`,
		Example: examples(
			"patchlog revert shop/ada/4711 --patch-id p7 --dry-run",
			"patchlog revert shop/ada/4711 --patch-id p7 --base 62",
		),
	}
	fs := cmd.Flags()
	var rules patchFlags
	var id filled
	required(fs, &id, "patch-id", "the `ID` of the patch to take back")
	rules.declareCommon(fs)
	rules.declareOrphans(fs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.revert(cmd.Context(), args[0], rules, string(id))
	}
	return cmd
}

func (a *app) rewindCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rewind KEY",
		Short: "Go back to before an invocation",
		Long: `What came from the invocation's first event on is hidden, and what it set in the state no
longer counts. Summaries of older events stay; one that also stands for newer ones is taken
back. All patches that this takes are logged together. Reverting them, the last one first,
takes the rewind back. Values that sessions share (app: and user: keys) stay.`,
		Example: examples(
			"patchlog rewind shop/ada/4711 --invocation inv7 --dry-run",
			"patchlog rewind shop/ada/4711 --invocation inv7",
		),
	}
	fs := cmd.Flags()
	var invocation filled
	required(fs, &invocation, "invocation", "the `ID` of the invocation to go back to")
	dryRun := fs.Bool("dry-run", false, "show what would change, and write nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.rewind(cmd.Context(), args[0], string(invocation), *dryRun)
	}
	return cmd
}

func (a *app) forkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fork KEY NEWKEY",
		Short: "Begin a new session with another one's log",
		Long: `The new session has the other's initial state and its records up to --at, or all of them.
From there on each goes its own way. Values that sessions share (app: and user: keys) are
not copied.`,
		Example: examples(
			"patchlog fork shop/ada/4711 shop/ada/what-if",
			"patchlog fork shop/ada/4711 shop/ada/what-if --at 61",
		),
	}
	fs := cmd.Flags()
	var at seq
	fs.Var(&at, "at", "up to the record with this `SEQ`")
	dryRun := fs.Bool("dry-run", false, "show what the new session would be, and write nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.fork(cmd.Context(), args[0], args[1], at, *dryRun)
	}
	return cmd
}

func (a *app) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff KEY",
		Short: "Show how a session differs between two records",
		Long: `Compared is what a model sees after the one record and after the other: events with - are
in the first view only, those with + in the second, each with its index there.`,
		Example: examples(
			"patchlog diff shop/ada/4711 --from 61 --to 62",
			"patchlog diff shop/ada/4711 --from 61            # up to now",
		),
	}
	fs := cmd.Flags()
	var from, to seq
	required(fs, &from, "from", "compare as it stood after the record with this `SEQ`")
	fs.Var(&to, "to", "with how it stood after the record with this `SEQ`; the last one if left out")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.diff(cmd.Context(), args[0], from, to)
	}
	return cmd
}

// revert takes a patch back, and with it the patches of its group.
func (a *app) revert(ctx context.Context, keyText string, rules patchFlags, id string) error {
	opts := store.BackOptions{Author: patchAuthor, AllowOrphans: rules.allowOrphans}
	if rules.base.given {
		opts.Base = &rules.base.n
	}
	return a.takeBack(ctx, keyText, id, rules.dryRun, opts, takingBack{
		"revert", "reverted patch", (*store.Store).PreviewRevert, (*store.Store).Revert,
	})
}

func (a *app) rewind(ctx context.Context, keyText, invocation string, dryRun bool) error {
	return a.takeBack(ctx, keyText, invocation, dryRun, store.BackOptions{Author: patchAuthor}, takingBack{
		"rewind", "rewound to before invocation", (*store.Store).PreviewRewind, (*store.Store).Rewind,
	})
}

// takingBack is a revert or a rewind.
type takingBack struct {
	name, done string
	preview    func(s *store.Store, ctx context.Context, key store.Key, opts store.BackOptions, id string) (store.Preview, error)
	do         func(s *store.Store, ctx context.Context, key store.Key, opts store.BackOptions, id string) (store.Committed, error)
}

// takeBack does what the preview on the same view said, or shows it.
func (a *app) takeBack(ctx context.Context, keyText, id string, dryRun bool, opts store.BackOptions, t takingBack) error {
	return a.withSession(ctx, keyText, writingUnless(dryRun), func(s *store.Store, key store.Key) error {
		would, err := t.preview(s, ctx, key, opts, id)
		if err != nil {
			return err
		}
		if dryRun {
			return a.showDifference(fmt.Sprintf("%s: dry run of %s, by %s; nothing is written", key, t.name, present.Counted(len(would.Patches), "record")), would.Before, would.After)
		}
		opts.On = would.Before
		done, err := t.do(s, ctx, key, opts, id)
		if err != nil {
			return err
		}
		return a.showTakenBack(fmt.Sprintf("%s: %s %s", key, t.done, present.Printable(id)), key, would.Before, done)
	})
}

// showTakenBack says what a revert or a rewind did.
func (a *app) showTakenBack(head string, key store.Key, before fold.View, done store.Committed) error {
	d := present.DifferenceOf(before, done.View)
	if a.json {
		ids := []string{}
		for _, r := range done.Records {
			ids = append(ids, r.ID())
		}
		var id string
		var typ patch.Type
		if len(done.Records) == 1 { // as for any one patch
			id, typ = ids[0], done.Records[0].Patch.Type()
		}
		return a.out.document(struct {
			Key     string     `json:"key"`
			Seq     uint64     `json:"seq"`
			ID      string     `json:"id,omitempty"`
			Type    patch.Type `json:"type,omitempty"`
			IDs     []string   `json:"ids"`
			Hidden  int        `json:"hidden"`
			Added   int        `json:"added"`
			Visible int        `json:"visible"`

			Pinned   []string `json:"pinned,omitempty"` // ids of visible events
			Unpinned []string `json:"unpinned,omitempty"`
		}{key.String(), done.View.Seq(), id, typ, ids, len(d.Removed), len(d.Added), done.View.Len(), d.Pinned, d.Unpinned})
	}
	a.out.linef("%s: %s hidden, %d added; %s now", head, present.Counted(len(d.Removed), "event"), len(d.Added), present.Counted(done.View.Len(), "visible event"))
	for _, id := range d.Pinned {
		a.out.linef("pinned: %s", present.Printable(id))
	}
	for _, id := range d.Unpinned {
		a.out.linef("unpinned: %s", present.Printable(id))
	}
	for _, r := range done.Records {
		a.out.linef("%s logged as record %d, id %s", r.Patch.Type(), r.Seq, present.Printable(r.ID()))
	}
	return nil
}

func (a *app) fork(ctx context.Context, keyText, newText string, at seq, dryRun bool) error {
	newKey, err := parseKey(newText)
	if err != nil {
		return err
	}
	return a.withSession(ctx, keyText, writingUnless(dryRun), func(s *store.Store, key store.Key) error {
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
		return a.out.linef("%s: %s from %s with %s; %s", newKey, done, key, present.Counted(v.Seq(), "record"), present.Counted(v.Len(), "visible event"))
	})
}

func (a *app) diff(ctx context.Context, keyText string, from, to seq) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
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
	d := present.DifferenceOf(before, after)
	if a.json {
		return a.out.document(d)
	}
	a.out.line(head)
	return a.out.difference(d, 0)
}
