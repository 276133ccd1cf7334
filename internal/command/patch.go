package command

import (
	"context"
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

const patchConventions = `The log keeps what the patch hides. Without --base, indices count from the log as it is
now; with --base SEQ, the patch is refused if a patch above SEQ has been logged since. A
patch that would split a tool call from its result is refused, and the message names the
smallest span around it that would pass; so is one that would hide a pinned event.

`

const (
	statesDropped = "What the hidden events set in the state no longer counts, unless --keep-state is given."
	statesKept    = "What the hidden events set in the state still counts, unless --drop-state is given."
)

func (a *app) patchCommand() *cobra.Command {
	return family("patch", "Change what a model sees", a.spliceCommand(), a.truncateBeforeCommand(), a.summariseCommand())
}

func (a *app) spliceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "splice KEY",
		Short: "Replace visible events by others, or by none",
		Long:  patchConventions + statesDropped,
		Example: examples(
			"patchlog patch splice shop/ada/4711 --start 25 --count 24 --dry-run",
			"patchlog patch splice shop/ada/4711 --start 25 --count 24 --replacement note.jsonl --keep-state",
			`echo '{"author":"agent","content":{"role":"model","parts":[{"text":"…"}]}}' |`,
			"  patchlog patch splice shop/ada/4711 --start 3 --count 2 --replacement -",
		),
	}
	var span span
	var rules patchFlags
	span.declare(cmd)
	rules.declare(cmd)
	replacement := cmd.Flags().String("replacement", "", "a `FILE` with the events to put in, one JSON object a line; - is standard input")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var events []*patch.Event
		if *replacement != "" {
			var err error
			if events, err = a.replacement(cmd.Context(), *replacement); err != nil {
				return err
			}
		}
		return a.patch(cmd.Context(), args[0], rules, func(fold.View) (*patch.PatchEvent, error) {
			return patch.NewSplice(span.start, span.count, events...), nil
		})
	}
	return cmd
}

func (a *app) truncateBeforeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "truncate-before KEY",
		Short: "Hide all events before a visible one",
		Long:  patchConventions + statesDropped,
		Example: examples(
			"patchlog patch truncate-before shop/ada/4711 --event-id e17 --dry-run",
			"patchlog patch truncate-before shop/ada/4711 --event-id e17 --keep-state",
		),
	}
	var eventID filled
	var rules patchFlags
	required(cmd.Flags(), &eventID, "event-id", "the `ID` of the event that becomes the first visible one")
	rules.declare(cmd)
	cmd.RunE = a.patchOf(&rules, &eventID, patch.NewTruncateBefore)
	return cmd
}

func (a *app) summariseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "summarise KEY",
		Short: "Replace visible events by a summary",
		Long:  patchConventions + statesKept,
		Example: examples(
			"patchlog patch summarise shop/ada/4711 --start 0 --count 20 --summary 'Ada ordered a lamp; order 4711.'",
			"patchlog patch summarise shop/ada/4711 --start 0 --count 20 --summary \"$(cat summary.txt)\" --base 62",
		),
	}
	var span span
	var rules patchFlags
	var text filled
	span.declare(cmd)
	rules.declare(cmd)
	required(cmd.Flags(), &text, "summary", "the `TEXT` of the summary")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.patch(cmd.Context(), args[0], rules, func(v fold.View) (*patch.PatchEvent, error) {
			return a.summarise(v, span.start, span.count, string(text))
		})
	}
	return cmd
}

func (a *app) pinCommand() *cobra.Command {
	return a.pinning("pin", "Keep a visible event in sight", `A patch or a compaction that would hide the event is refused, or leaves it out. What a
model sees stays as it is. Pinning is on record as any patch, and can be reverted.`, patch.NewPin)
}

func (a *app) unpinCommand() *cobra.Command {
	return a.pinning("unpin", "Let a pinned event be hidden again", `What pins have said of the event no longer counts. Unpinning is on record as any patch,
and can be reverted.`, patch.NewUnpin)
}

func (a *app) pinning(name, short, long string, build func(eventID string) *patch.PatchEvent) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " KEY", Short: short, Long: long,
		Example: examples("patchlog "+name+" shop/ada/4711 --event-id e17", "patchlog "+name+" shop/ada/4711 --event-id e17 --base 62"),
	}
	var eventID filled
	var rules patchFlags
	required(cmd.Flags(), &eventID, "event-id", "the `ID` of a visible event")
	rules.declareCommon(cmd.Flags())
	cmd.RunE = a.patchOf(&rules, &eventID, build)
	return cmd
}

// patchOf returns what a command does that logs a patch about an event.
func (a *app) patchOf(rules *patchFlags, eventID *filled, build func(eventID string) *patch.PatchEvent) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.patch(cmd.Context(), args[0], *rules, func(fold.View) (*patch.PatchEvent, error) {
			return build(string(*eventID)), nil
		})
	}
}

// span says which visible events a patch takes out.
type span struct {
	start, count int
}

func (s *span) declare(cmd *cobra.Command) {
	required(cmd.Flags(), number{&s.start, math.MinInt}, "start", "hide from the event with index `N` on, counted from 0")
	required(cmd.Flags(), number{&s.count, math.MinInt}, "count", "hide `N` events")
}

// patchFlags are the flags that patches have.
type patchFlags struct {
	keep, drop                bool
	base                      seq
	allowOrphans, allowPinned bool
	dryRun                    bool
}

func (f *patchFlags) declare(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.declareCommon(fs)
	f.declareOrphans(fs)
	fs.BoolVar(&f.allowPinned, "allow-pinned", false, "hide pinned events, too")
	fs.BoolVar(&f.keep, "keep-state", false, "what the hidden events set in the state still counts")
	fs.BoolVar(&f.drop, "drop-state", false, "what the hidden events set in the state no longer counts")
	cmd.MarkFlagsMutuallyExclusive("keep-state", "drop-state")
}

// declareCommon declares the flags of whatever logs patches.
func (f *patchFlags) declareCommon(fs *pflag.FlagSet) {
	fs.Var(&f.base, "base", "refuse if a patch above `SEQ` has been logged, which you have not seen")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would change, and write nothing")
}

func (f *patchFlags) declareOrphans(fs *pflag.FlagSet) {
	fs.BoolVar(&f.allowOrphans, "allow-orphans", false, "accept split tool calls")
}

// The author of patches made by hand.
const patchAuthor = "patchlog"

// patch makes a patch from the newest view, and applies it or shows what it would do.
func (a *app) patch(ctx context.Context, keyText string, rules patchFlags, build func(fold.View) (*patch.PatchEvent, error)) error {
	return a.withSession(ctx, keyText, writingUnless(rules.dryRun), func(s *store.Store, key store.Key) error {
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
		opts := store.PatchOptions{AsOfNow: true, AllowOrphans: rules.allowOrphans, AllowPinned: rules.allowPinned}
		if rules.dryRun {
			preview, err := s.Preview(ctx, key, opts, p)
			if err != nil {
				return err
			}
			return a.showPreview(key, p, preview)
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
	return a.out.linef("%s: %s logged as record %d, id %s: %s hidden, %d added; %s now",
		key, r.Patch.Type(), r.Seq, present.Printable(r.ID()), present.Counted(hidden, "event"), added, present.Counted(visible, "visible event"))
}
