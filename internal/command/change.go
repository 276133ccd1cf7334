package command

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) patchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "patch KEY START COUNT",
		Short: "Hide events, or replace them by a summary or by other events",
		Long: `The COUNT visible events from index START on are hidden; 'patchlog log' shows the indices. --summary
puts a summary in their place, --replacement other events. The log keeps what is hidden, and 'patchlog
revert' brings it back.

A patch that separates a tool call from its result is refused, and the message names the smallest
span that would pass. A patch that hides a pinned event is refused.

What the hidden events set in the state no longer counts, except with --summary. --state changes that.`,
		Example: examples("patchlog patch shop/ada/4711 0 20 --summary 'Ada ordered a lamp; order 4711.' --dry-run"),
	}
	fs := cmd.Flags()
	var rules changeFlags
	rules.declare(fs)
	fs.BoolVar(&rules.allowOrphans, "allow-orphans", false, "accept a tool call without its result, or a result without its call")
	fs.BoolVar(&rules.allowPinned, "allow-pinned", false, "hide pinned events too")
	var text textFlag
	fs.Var(&text, "summary", "put a summary of this `TEXT` in place of the events")
	replacement := fs.String("replacement", "", "put the events of this `FILE` in their place, one JSON object a line; - is standard input")
	state := fs.String("state", "", "`keep` or drop what the hidden events set in the state")
	cmd.MarkFlagsMutuallyExclusive("summary", "replacement")
	cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]cobra.Completion{string(patch.Keep), string(patch.Drop)}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		policy := patch.StatePolicy(*state)
		if policy != "" && policy != patch.Keep && policy != patch.Drop {
			return usagef("--state: %q is neither %s nor %s", *state, patch.Keep, patch.Drop)
		}
		start, err := parseIndex("START", args[1])
		if err != nil {
			return err
		}
		count, err := parseIndex("COUNT", args[2])
		if err != nil {
			return err
		}
		var events []*patch.Event
		if *replacement != "" {
			if events, err = a.replacement(cmd.Context(), *replacement); err != nil {
				return err
			}
		}
		edit := ops.Edit{Kind: ops.Cut, Spans: []compaction.Span{{Start: start, Count: count}}, Replacement: events, Text: string(text), State: policy}
		if text != "" {
			edit.Kind = ops.Summarise
		}
		return a.patch(cmd.Context(), args[0], rules, func(*store.Store, store.Key, fold.View) (ops.Edit, error) { return edit, nil })
	}
	return cmd
}

func (a *app) pinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pin KEY EVENT",
		Short: "Keep an event visible",
		Long: `A patch that would hide a pinned event is refused, and compaction leaves it out. EVENT is the number
of a record, an id, or the beginning of an id. --remove ends the pin.`,
		Example: examples("patchlog pin shop/ada/4711 17", "patchlog pin shop/ada/4711 17 --remove"),
	}
	var rules changeFlags
	rules.declare(cmd.Flags())
	remove := cmd.Flags().Bool("remove", false, "let the event be hidden again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.patch(cmd.Context(), args[0], rules, func(s *store.Store, key store.Key, v fold.View) (ops.Edit, error) {
			id, err := ops.EventID(cmd.Context(), s, key, v, args[1])
			edit := ops.Edit{Kind: ops.Pin, EventID: id}
			if *remove {
				edit.Kind = ops.Unpin
			}
			return edit, err
		})
	}
	return cmd
}

func (a *app) revertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revert KEY PATCH",
		Short: "Take a patch back",
		Long: `What the patch hid is visible again, and what the patch put in is hidden. The state follows. PATCH is
the number of its record, its id, or the beginning of its id; 'patchlog audit' shows them.

If a later patch depends on it, the message names the patch to revert first. Patches that compaction
logged together are reverted together. A revert can be reverted.`,
		Example: examples("patchlog revert shop/ada/4711 62 --dry-run"),
	}
	fs := cmd.Flags()
	var rules changeFlags
	rules.declare(fs)
	fs.BoolVar(&rules.allowOrphans, "allow-orphans", false, "accept a tool call without its result, or a result without its call")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.change(cmd.Context(), args[0], rules.dryRun, func(s *store.Store, key store.Key, _ fold.View) (string, ops.Change, error) {
			id, err := ops.PatchID(cmd.Context(), s, key, args[1])
			return "revert", ops.Revert{PatchID: id, Options: store.UndoOptions{Author: patchAuthor, AllowOrphans: rules.allowOrphans}}, err
		})
	}
	return cmd
}

func (a *app) rewindCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rewind KEY TURN",
		Short: "Go back to before a turn",
		Long: `The events from the first one of the turn on are hidden, and what they set in the state no longer
counts. TURN is the number of any record of the turn, the id of its invocation, or the beginning of
that id. Summaries of older events stay; a summary that also covers newer ones is reverted. Values that
sessions share (app: and user: keys) stay.

The patches that this takes are logged together. Reverting them, the last one first, undoes it.`,
		Example: examples("patchlog rewind shop/ada/4711 57 --dry-run"),
	}
	dryRun := declareDryRun(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.change(cmd.Context(), args[0], *dryRun, func(s *store.Store, key store.Key, _ fold.View) (string, ops.Change, error) {
			id, err := ops.InvocationID(cmd.Context(), s, key, args[1])
			return "rewind", ops.Rewind{InvocationID: id, Options: store.UndoOptions{Author: patchAuthor}}, err
		})
	}
	return cmd
}

func (a *app) forkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fork KEY NEWKEY",
		Short: "Begin a new session with another one's log",
		Long: `The new session has the initial state and the records of the other one, up to --at or all of them.
From there on they are independent. Values that sessions share (app: and user: keys) are not copied.`,
		Example: examples("patchlog fork shop/ada/4711 shop/ada/what-if --at 61"),
	}
	fs := cmd.Flags()
	var at seq
	fs.Var(&at, "at", "copy the log up to the record with this `SEQ`")
	dryRun := declareDryRun(fs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		to, err := parseKey(args[1])
		if err != nil {
			return err
		}
		return a.withSession(cmd.Context(), args[0], writingUnless(*dryRun), func(s *store.Store, key store.Key) error {
			fork := ops.Fork{From: key, To: to, At: at.pointer()}
			do, head := fork.Apply, ""
			if *dryRun {
				do, head = fork.Preview, "dry run; nothing is written: "
			}
			v, err := do(cmd.Context(), s)
			if err != nil {
				return err
			}
			if a.json {
				return a.out.document(struct {
					Key     string `json:"key"`
					From    string `json:"from"`
					Seq     uint64 `json:"seq"`
					Visible int    `json:"visible"`
					DryRun  bool   `json:"dryRun"`
				}{to.String(), key.String(), v.Seq(), v.Len(), *dryRun})
			}
			return a.out.line(head + fork.Explain(v))
		})
	}
	return cmd
}

func (a *app) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff KEY FROM [TO]",
		Short: "Show how a session differs between two records",
		Long: `Compared is what a model sees after record FROM and after record TO, or now. Events with - are
visible after FROM only, those with + after TO only, each with its index there.`,
		Example: examples("patchlog diff shop/ada/4711 61"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var from, to seq
		if err := from.Set(args[1]); err != nil {
			return usagef("FROM: %q is not the number of a record", args[1])
		}
		if len(args) > 2 && to.Set(args[2]) != nil {
			return usagef("TO: %q is not the number of a record", args[2])
		}
		return a.withSession(cmd.Context(), args[0], Reading, func(s *store.Store, key store.Key) error {
			before, err := s.ViewAt(cmd.Context(), key, from.n)
			if err != nil {
				return err
			}
			after, err := viewAt(cmd.Context(), s, key, to)
			if err != nil {
				return err
			}
			return a.showDifference(fmt.Sprintf("%s: from record %d to record %d", key, before.Seq(), after.Seq()), present.DifferenceOf(before, after), 0)
		})
	}
	return cmd
}

// parseIndex reads an operand that is an index or a count.
func parseIndex(name, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, usagef("%s: %q is not an integer from 0 on", name, text)
	}
	return n, nil
}

// changeFlags are the flags of commands that log patches.
type changeFlags struct {
	allowOrphans, allowPinned bool
	dryRun                    bool
}

func (f *changeFlags) declare(fs *pflag.FlagSet) {
	fs.BoolVar(&f.dryRun, "dry-run", false, dryRunUsage)
}

const dryRunUsage = "show what would be done, and write nothing"

func declareDryRun(fs *pflag.FlagSet) *bool { return fs.Bool("dry-run", false, dryRunUsage) }

// The author of patches made by hand.
const patchAuthor = "patchlog"

// patch edits the visible log, or shows what that would do.
func (a *app) patch(ctx context.Context, keyText string, rules changeFlags, plan func(*store.Store, store.Key, fold.View) (ops.Edit, error)) error {
	return a.change(ctx, keyText, rules.dryRun, func(s *store.Store, key store.Key, v fold.View) (string, ops.Change, error) {
		edit, err := plan(s, key, v)
		edit.Author, edit.NewInvocation = patchAuthor, a.options.NewID
		return string(edit.Kind), ops.Patches{Plan: edit.Patches, Options: store.PatchOptions{AllowOrphans: rules.allowOrphans, AllowPinned: rules.allowPinned}}, err
	})
}

// Visible events that are shown before and after a change.
const diffContext = 2

// change changes a session as it is now, or shows what that would do.
func (a *app) change(ctx context.Context, keyText string, dryRun bool, plan func(*store.Store, store.Key, fold.View) (name string, c ops.Change, err error)) error {
	return a.withSession(ctx, keyText, writingUnless(dryRun), func(s *store.Store, key store.Key) error {
		v, err := s.View(ctx, key)
		if err != nil {
			return err
		}
		name, c, err := plan(s, key, v)
		if err != nil {
			return err
		}
		if dryRun {
			would, err := c.Preview(ctx, s, key, v)
			if err != nil {
				return err
			}
			return a.showDifference(fmt.Sprintf("%s: dry run of %s, by %s; nothing is written", key, name, present.Counted(len(would.Patches), "record")), ops.Explain(would), diffContext)
		}
		done, err := c.Apply(ctx, s, key, v)
		if err != nil {
			return err
		}
		return a.showChanged(key, v, done)
	})
}

// showChanged says what a change did.
func (a *app) showChanged(key store.Key, before fold.View, done store.Committed) error {
	d := present.DifferenceOf(before, done.View)
	if a.json {
		type record struct {
			Seq  uint64     `json:"seq"`
			ID   string     `json:"id"`
			Type patch.Type `json:"type"`
		}
		records := []record{}
		for _, r := range done.Records {
			records = append(records, record{r.Seq, r.ID(), r.Patch.Type()})
		}
		return a.out.document(struct {
			Key      string   `json:"key"`
			Records  []record `json:"records"`
			Hidden   int      `json:"hidden"`
			Added    int      `json:"added"`
			Visible  int      `json:"visible"`
			Pinned   []string `json:"pinned,omitempty"` // ids of visible events
			Unpinned []string `json:"unpinned,omitempty"`
		}{key.String(), records, len(d.Removed), len(d.Added), d.VisibleAfter, d.Pinned, d.Unpinned})
	}
	for _, r := range done.Records {
		a.out.linef("%s: %s logged as record %d, id %s", key, r.Patch.Type(), r.Seq, present.Printable(r.ID()))
	}
	if len(done.Records) == 0 {
		a.out.linef("%s: nothing had to be logged", key)
	}
	a.out.line(d.Sentence())
	for _, line := range d.PinLines() {
		a.out.line(line)
	}
	return nil
}
