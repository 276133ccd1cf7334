package inspector

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// compactingNow is the deed of a compaction that somebody waits for.
type compactingNow struct {
	i *Inspector
	a *asked
}

func (d compactingNow) compact() ops.Compact {
	return ops.Compact{Config: d.i.opts.Compaction, Run: compaction.Run{Focus: d.a.focus, Again: true}, Logger: d.i.opts.Logger}
}

func (d compactingNow) preview(_ context.Context, v fold.View, b *actBody) error {
	decision, err := d.compact().Preview(v)
	if err != nil {
		return err
	}
	plan := present.PlanOf(d.a.key, decision)
	b.notice("%s", plan.Reason)
	b.Plan = plan.Rows()
	w := decision.Window
	if w == nil {
		return nil
	}
	first := w.Start
	for _, s := range w.Also {
		first = min(first, s.Start)
	}
	covered := actDifference{Title: "What the next pass would make a summary of", Reuse: reuseText(first)}
	if len(w.Results) > 0 {
		covered.Title = "Where results would be cleared"
		for _, r := range w.Results {
			covered.add(present.Change{Sign: present.Changed, Index: r.Index, Entry: present.EntryAt(v, r.Index)})
		}
	}
	for _, g := range w.Groups {
		for _, n := range g.Indices {
			covered.add(present.Change{Sign: present.Went, Index: n, Entry: present.EntryAt(v, n)})
		}
	}
	b.Differences = append(b.Differences, covered)
	b.notice("%s", plan.Outlook())
	if len(w.Groups) > 0 {
		b.notice("The summarizer is asked when it is done, and that can take minutes: the page that follows comes when it has ended. Where an invocation is running, better wait until it is over.")
	}
	b.Forms = append(b.Forms, actForm{Button: "Do it", Strong: true, Fields: d.a.fields(stepDo)})
	return nil
}

func (d compactingNow) do(ctx context.Context, v fold.View, b *actBody) error {
	end, ok := d.i.compactions.begin(d.a.key)
	if !ok {
		return &unfit{busy: true, text: "This session is being compacted already, since somebody asked for it just before. Look again when that has ended."}
	}
	defer end()
	newest, err := d.i.store.View(ctx, d.a.key)
	if err != nil {
		return err
	}
	if newest.PatchSeq() != v.PatchSeq() {
		since, err := d.i.patchesSince(ctx, d.a.key, v.PatchSeq())
		if err != nil {
			return err
		}
		if _, ok := compaction.WrittenBy(since[0].Patch); !ok {
			return &store.ConflictError{Base: v.PatchSeq(), Newest: newest.PatchSeq()}
		}
		b.notice("The session was compacted since the preview. Nothing more was written.")
		return d.i.showDone(ctx, d.a, b, passesOf(since))
	}
	written, failed := d.compact().Apply(ctx, d.i.store, d.a.key, newest)
	if len(written.Passes) > 0 {
		since, err := d.i.patchesSince(context.WithoutCancel(ctx), d.a.key, v.PatchSeq())
		if err == nil {
			err = d.i.showDone(context.WithoutCancel(ctx), d.a, b, passesOf(since))
		}
		if err != nil {
			return err
		}
	}
	if failed != nil {
		return &notCompacted{failed, len(written.Passes)}
	}
	if written.Stopped != "" {
		b.notice("%s%s.", strings.ToUpper(written.Stopped[:1]), written.Stopped[1:])
	} else if len(written.Passes) == 0 {
		b.notice("Nothing was written: nothing is due any more.")
	}
	if len(written.Passes) == 0 {
		b.Heading = "Not compacted"
	}
	return nil
}

// passesOf are the records of the patches that compaction logged, up to the first that somebody
// else did.
func passesOf(since []patch.Record) []patch.Record {
	group := ""
	for n, r := range since {
		if _, ok := compaction.WrittenBy(r.Patch); !ok && (group == "" || r.Patch.Group() != group) {
			return since[:n]
		}
		group = r.Patch.Group()
	}
	return since
}

// notCompacted is an error of a compaction, after so many passes.
type notCompacted struct {
	err    error
	passes int
}

func (e *notCompacted) Error() string {
	text := "The summary could not be made"
	if refused := (*compaction.SummarizerError)(nil); !errors.As(e.err, &refused) {
		text = "The compaction failed"
	}
	if errors.Is(e.err, context.DeadlineExceeded) {
		text += ", for it took too long"
	}
	text += ": " + present.PrintableUpTo(e.err.Error(), 1000) + ". "
	if e.passes == 0 {
		return text + "Nothing was written, and the session is as it was."
	}
	return text + "What was written before that stays."
}

func (e *notCompacted) Unwrap() error { return e.err }

// compactions are the sessions that are being compacted on request: a second click must not ask a
// summarizer twice.
type compactions struct {
	mu   sync.Mutex
	busy map[store.Key]bool
}

func (c *compactions) begin(key store.Key) (end func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[key] {
		return nil, false
	}
	if c.busy == nil {
		c.busy = map[store.Key]bool{}
	}
	c.busy[key] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.busy, key)
	}, true
}
