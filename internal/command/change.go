package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/sources"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) patchCommand() *cobra.Command {
	cmd := command(`patch KEY [START] [COUNT]
Hide events, or replace them by a summary or by other events

COUNT visible events are hidden, beginning with index START. 'patchlog log' shows the indices. --summary inserts a summary
in their place, --replacement inserts other events. With --before EVENT in place of START and COUNT, all events before
EVENT are hidden. EVENT is the number of a record, an id, or the beginning of an id. Hidden events stay in the log. To
make them visible again, use 'patchlog revert'.

If a patch would separate a tool call from its result, it is refused, and the message names the smallest span that is
accepted. A patch that would hide a pinned event is refused, too. With --base SEQ, a patch is refused as a conflict if a
patch newer than record SEQ was logged, since the indices may have changed.

State values that the hidden events set are undone, except with --summary. Use --state to keep or to undo them.

$ patchlog patch shop/ada/4711 0 20 --summary 'Ada ordered a lamp.' --dry-run
$ patchlog patch shop/ada/4711 --before 61 --base 58`)
	fs := cmd.Flags()
	edit, options := ops.Edit{Kind: ops.Cut}, store.PatchOptions{}
	before := ""
	textVar(fs, &before, "before", "hide all events before this `EVENT`")
	seqVar(fs, &edit.Base, "base", "refuse the patch if a patch newer than the record with this `SEQ` was logged; 0: any patch")
	fs.BoolVar(&options.AllowOrphans, "allow-orphans", false, orphansUsage)
	fs.BoolVar(&options.AllowPinned, "allow-pinned", false, "hide pinned events too")
	textVar(fs, &edit.Text, "summary", "replace the events by a summary with this `TEXT`")
	replacement := fs.String("replacement", "", "replace the events by those in `FILE`, one JSON object a line; - is standard input")
	choose(cmd, (*string)(&edit.State), "state", "keep or drop what the hidden events set in the state", string(patch.Keep), string(patch.Drop))
	a.declareAuthor(cmd, &edit.Author)
	cmd.MarkFlagsMutuallyExclusive("summary", "replacement", "before")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		switch {
		case before != "" && len(args) > 1:
			return usagef("--before takes the place of START and COUNT")
		case before != "":
			edit.Kind = ops.Truncate
			return nil
		case len(args) == 1:
			return usagef("give START and COUNT, or --before")
		case len(args) == 2:
			return usagef("COUNT is missing")
		}
		start, err := parseNumber("START", args[1])
		count, countErr := parseNumber("COUNT", args[2])
		if err := cmp.Or(err, countErr); err != nil {
			return err
		}
		edit.Spans = []compaction.Span{{Start: start, Count: count}}
		if edit.Text != "" {
			edit.Kind = ops.Summarise
		}
		if *replacement != "" {
			edit.Replacement, err = sources.ReadEvents(cmd.Context(), *replacement, a.stdin)
		}
		return err
	}
	return a.changes(cmd, func(ctx context.Context, s *store.Store, key store.Key, v fold.View, _ []string) (_ ops.Change, err error) {
		if before != "" {
			edit.EventID, err = ops.VisibleEventID(ctx, s, key, v, before)
		}
		return a.patches(edit, options), err
	})
}

func (a *app) pinCommand() *cobra.Command {
	cmd := command(`pin KEY EVENT
Keep an event visible

A patch that would hide a pinned event is refused, and compaction skips the event. EVENT is the number of a record, an id,
or the beginning of an id. --remove ends the pin.

$ patchlog pin shop/ada/4711 17
$ patchlog pin shop/ada/4711 17 --remove`)
	remove := cmd.Flags().Bool("remove", false, "let the event be hidden again")
	author := ""
	a.declareAuthor(cmd, &author)
	return a.changes(cmd, func(ctx context.Context, s *store.Store, key store.Key, v fold.View, args []string) (ops.Change, error) {
		id, err := ops.VisibleEventID(ctx, s, key, v, args[1])
		if err != nil {
			return nil, err
		}
		edit := ops.Edit{Kind: ops.Pin, EventID: id, Author: author}
		if *remove {
			edit.Kind = ops.Unpin
		}
		if n, visible := v.Find(id); visible && v.IsPinned(n) != *remove {
			return nothing("event " + present.Printable(id) + map[bool]string{true: " is not pinned", false: " is pinned already"}[*remove]), nil
		}
		return a.patches(edit, store.PatchOptions{}), nil
	})
}

// nothing is a change that has no effect. Its text says why.
type nothing string

func (nothing) Preview(_ context.Context, _ *store.Store, _ store.Key, on fold.View) (store.Preview, error) {
	return store.Preview{Difference: on.Diff(on)}, nil
}

func (nothing) Apply(_ context.Context, _ *store.Store, _ store.Key, on fold.View) (store.Committed, error) {
	return store.Committed{View: on}, nil
}

func (a *app) repairCommand() *cobra.Command {
	cmd := command(`repair KEY
Answer the tool calls of interrupted runs

If a run ended between a call and its result, model APIs refuse the prompt. For each such call, this inserts the result
"interrupted: no result was recorded". It skips long-running calls, questions to a user, open tasks, and runs that another
process still holds. To undo it, use 'patchlog revert --allow-orphans'.

$ patchlog repair shop/ada/4711 --dry-run`)
	author := ""
	a.declareAuthor(cmd, &author)
	return a.changes(cmd, func(ctx context.Context, s *store.Store, key store.Key, v fold.View, _ []string) (ops.Change, error) {
		patches, err := ops.CloseCalls(ctx, s, key, v, author, a.options.NewID)
		if err == nil && len(patches) == 0 {
			return nothing("no call of an interrupted run is without an answer"), nil
		}
		return ops.Patches{Plan: func(fold.View) ([]*patch.PatchEvent, error) { return patches, nil }}, err
	})
}

func (a *app) revertCommand() *cobra.Command {
	cmd := command(`revert KEY PATCH
Undo a patch

The events that the patch hid become visible again, the events that it inserted are hidden, and the state changes
accordingly. PATCH is the number of its record, its id, or the beginning of its id; 'patchlog audit' shows them.

If a later patch depends on PATCH, the message names the patch to revert first. Patches that compaction logged together
are reverted together. A revert can be reverted.

$ patchlog revert shop/ada/4711 62 --dry-run`)
	undo := store.UndoOptions{}
	a.declareAuthor(cmd, &undo.Author)
	cmd.Flags().BoolVar(&undo.AllowOrphans, "allow-orphans", false, orphansUsage)
	return a.changes(cmd, func(ctx context.Context, s *store.Store, key store.Key, _ fold.View, args []string) (ops.Change, error) {
		id, err := ops.PatchID(ctx, s, key, args[1])
		return ops.Undo{PatchID: id, Options: undo}, err
	})
}

func (a *app) rewindCommand() *cobra.Command {
	cmd := command(`rewind KEY
Go back to before a turn

All events since the beginning of the turn are hidden, and the state values that they set are undone. --turn selects the
turn by its number, --record by the number of any of its records, and --invocation by the id of its invocation or the
beginning of this id.

Summaries of older events stay. A summary that also covers newer events is reverted. All changes of pins since the
beginning of the turn are undone. Values that sessions share (app: and user: keys) stay.

To undo a rewind, revert one of the patches that it logged. The others are reverted together with it.

$ patchlog rewind shop/ada/4711 --turn 4 --dry-run`)
	fs := cmd.Flags()
	where := ops.Invocation{}
	numberVar(fs, &where.Turn, 1, "turn", "go back to before turn `N`; turns are invocations, counted from 1")
	numberVar(fs, &where.Record, 1, "record", "go back to before the turn that has the record with this `SEQ`")
	textVar(fs, &where.ID, "invocation", "go back to before the turn of the invocation with this `ID`")
	cmd.MarkFlagsMutuallyExclusive("turn", "record", "invocation")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 {
			return usagef("%q: write --turn, --record or --invocation before it", args[1])
		}
		return operands(cmd, args)
	}
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if where == (ops.Invocation{}) {
			return usagef("give --turn, --record or --invocation")
		}
		return nil
	}
	undo := store.UndoOptions{}
	a.declareAuthor(cmd, &undo.Author)
	return a.changes(cmd, func(ctx context.Context, s *store.Store, key store.Key, _ fold.View, _ []string) (ops.Change, error) {
		id, err := where.Find(ctx, s, key)
		return ops.Undo{InvocationID: id, Options: undo}, err
	})
}

// parseNumber parses a number operand. Errors contain the operand's name.
func parseNumber(name, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, usagef("%s: %q is not an integer from 0 on", name, text)
	}
	return n, nil
}

const orphansUsage = "accept a tool call without its result, or a result without its call"

// declareAuthor declares the flag --author, which sets the author of the logged records. The default is the
// name of the user.
func (a *app) declareAuthor(cmd *cobra.Command, author *string) {
	user := cmp.Or(a.env("USER"), a.env("LOGNAME"), a.env("USERNAME"), "patchlog")
	cmd.Flags().StringVar(author, "author", user, "log this `NAME` as the author (default the user's name)")
	cmd.Flags().Lookup("author").DefValue = ""
}

// patches returns the change that logs the patches of an edit.
func (a *app) patches(edit ops.Edit, options store.PatchOptions) ops.Change {
	edit.NewID = a.options.NewID
	return ops.Patches{Plan: edit.Patches, Options: options}
}

// diffContext is the number of unchanged visible events shown before and after a change.
const diffContext = 2

// changes completes a command that plans a change to a session. The command applies the change or, with
// --dry-run, previews it.
func (a *app) changes(cmd *cobra.Command, plan func(ctx context.Context, s *store.Store, key store.Key, v fold.View, args []string) (ops.Change, error)) *cobra.Command {
	dryRun := declareDryRun(cmd)
	cmd.RunE = a.onSession(dryRun, func(ctx context.Context, s *store.Store, key store.Key, args []string) error {
		v, err := s.View(ctx, key)
		if err != nil {
			return err
		}
		c, err := plan(ctx, s, key, v, args)
		if err != nil {
			return err
		}
		if n, ok := c.(nothing); ok && !a.json {
			return a.out.Linef("%s: %s; nothing is logged", key, string(n))
		}
		if *dryRun {
			would, err := c.Preview(ctx, s, key, v)
			if err != nil {
				return withRecord(err, v)
			}
			name := cmd.Name()
			if _, edits := c.(ops.Patches); edits {
				name = string(would.Patches[0].Type())
			}
			return a.showDifference(fmt.Sprintf("%s: dry run of %s, by %s; nothing is written", key, name, present.Counted(len(would.Patches), "record")), ops.DifferenceOf(would), diffContext)
		}
		done, err := c.Apply(ctx, s, key, v)
		if err != nil {
			return withRecord(err, v)
		}
		return a.showChanged(key, v, done)
	})
	return cmd
}

// withRecord adds a record number to an error that suggests an event, because 'patchlog log' shows no event
// ids.
func withRecord(err error, v fold.View) error {
	if orphans := (*fold.OrphanError)(nil); errors.As(err, &orphans) && orphans.EventID != "" {
		if i, visible := v.Find(orphans.EventID); visible {
			return fmt.Errorf("%w (record %d)", err, v.Entry(i).Seq)
		}
	}
	return err
}

// showChanged writes the receipt of a change.
func (a *app) showChanged(key store.Key, before fold.View, done store.Committed) error {
	d := present.DifferenceOf(before, done.View)
	if a.json {
		return a.out.Document(struct {
			Key      store.Key      `json:"key"`
			Records  []patch.Record `json:"records"`
			Hidden   int            `json:"hidden"`
			Added    int            `json:"added"`
			Visible  int            `json:"visible"`
			Pinned   []string       `json:"pinned"`
			Unpinned []string       `json:"unpinned"` // ids of visible events that were unpinned
		}{key, done.Records, len(d.Removed), len(d.Added), d.VisibleAfter, d.Pinned, d.Unpinned})
	}
	for _, r := range done.Records {
		a.out.Linef("%s: %s logged as record %d, id %s", key, r.Patch.Type(), r.Seq, present.Printable(r.ID()))
	}
	if len(done.Records) == 0 {
		a.out.Linef("%s: nothing had to be logged", key)
	}
	effect := d.Sentence()
	if len(d.Removed)+len(d.Added) == 0 {
		effect = present.SameEvents
	}
	a.out.Line(effect)
	a.out.Lines(d.PinLines())
	return nil
}
