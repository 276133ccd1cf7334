package adk_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// Who is shown a summary before it is written sees what will be in the log, and can change
// nothing in it.
func TestBeforeSummary(t *testing.T) {
	var mu sync.Mutex
	var drafts []adk.Draft
	svc := compacted(t, adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})},
		BeforeSummary: func(_ context.Context, d adk.Draft) error {
			mu.Lock()
			defer mu.Unlock()
			kept := d
			kept.Summaries, kept.Patches = nil, slices.Clone(d.Patches)
			for _, s := range d.Summaries {
				copied := *s.Event
				content := *s.Event.Content
				copied.Content = &content
				kept.Summaries = append(kept.Summaries, adk.DraftSummary{Event: &copied, Of: slices.Clone(s.Of)})
			}
			drafts = append(drafts, kept)
			for i, s := range d.Summaries {
				s.Event.Content.Parts = []*genai.Part{genai.NewPartFromText("forged")}
				s.Event.ID = "forged"
				for j, e := range s.Of {
					e.Content = nil
					s.Of[j] = nil
				}
				d.Summaries[i] = adk.DraftSummary{}
			}
			clear(d.Patches)
			return nil
		},
	})
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	_, err := svc.Compact(t.Context(), sess)
	no(t, err)
	mu.Lock()
	defer mu.Unlock()
	if len(drafts) == 0 {
		t.Fatal("nobody was asked")
	}
	d := drafts[0]
	equal(t, "whose", []string{d.AppName, d.UserID, d.SessionID}, []string{"app", "user", "s"})
	if len(d.Summaries) != 1 || len(d.Summaries[0].Of) != d.Written.EventsBefore || d.Summaries[0].Of[0].ID != "ui0" {
		t.Errorf("the draft is %+v", d)
	}
	logged := 0
	for r, err := range svc.RawEvents(t.Context(), sess, 1) {
		no(t, err)
		if r.Patch == nil || r.ID() != d.Patches[0].ID() {
			continue
		}
		logged++
		e, err := adk.SessionEvent(r.Patch.Summary())
		no(t, err)
		equal(t, "summary", e.Content, d.Summaries[0].Event.Content)
		equal(t, "id", e.ID, d.Summaries[0].Event.ID)
	}
	equal(t, "patches logged", logged, 1)
}

// A veto reaches no run, whoever panics or hangs neither; all are counted, and the last one
// can be asked for.
func TestSummariesThatAreNotApproved(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	secret := errors.New("a secret is in it")
	for _, c := range []struct {
		name    string
		before  func(context.Context, adk.Draft) error
		outcome compaction.Outcome
		err     error
	}{
		{"veto", func(context.Context, adk.Draft) error { return secret }, compaction.Vetoed, secret},
		{"panic", func(context.Context, adk.Draft) error { panic("no") }, compaction.Failed, compaction.ErrPanic},
		{"never returns", func(context.Context, adk.Draft) error { <-release; return nil }, compaction.Failed, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := inRun
			cfg.Summarizer = adk.Summarizer(shortener{})
			var mu sync.Mutex
			outcomes := map[compaction.Outcome]int{}
			svc := compacted(t, adk.Options{
				Compaction: cfg, CompactionTimeout: 100 * time.Millisecond, BeforeSummary: c.before,
				OnCompaction: func(a compaction.Attempt[store.Key]) {
					mu.Lock()
					defer mu.Unlock()
					outcomes[a.Outcome]++
				},
			})
			prompts := toolLoop(t, svc, 20, "the question")
			equal(t, "contents of the last prompt", len(prompts[len(prompts)-1]), 1+2*20)
			mu.Lock()
			n := outcomes[c.outcome]
			if n == 0 || n > 10 || len(outcomes) != 1 {
				t.Errorf("the outcomes are %v", outcomes)
			}
			mu.Unlock()
			last, ok := svc.LastCompaction(get(t, svc, "s"))
			if !ok || last.Outcome != c.outcome || !errors.Is(last.Err, c.err) || errors.Is(last.Err, compaction.ErrVetoed) != (c.outcome == compaction.Vetoed) {
				t.Errorf("the last attempt is %+v, %v", last, ok)
			}
			if c.name != "never returns" {
				_, err := svc.Compact(t.Context(), get(t, svc, "s"))
				fails(t, err, c.err)
			}
			if get(t, svc, "s").Events().Len() != 1+2*20+1 {
				t.Error("something was written")
			}
		})
	}
}
