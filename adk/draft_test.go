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
func TestBeforeSummarise(t *testing.T) {
	var mu sync.Mutex
	var drafts []adk.Draft
	svc := compacted(t, adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})},
		Hooks: adk.Hooks{BeforeSummarise: func(_ context.Context, d adk.Draft) error {
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
		}},
	})
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	_, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
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
		e, err := adk.SessionEvent(r.Patch.NewEvents()[0])
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
				Compaction: cfg, CompactionTimeout: 100 * time.Millisecond, Hooks: adk.Hooks{BeforeSummarise: c.before, OnCompaction: func(a compaction.Attempt[store.Key]) {
					mu.Lock()
					defer mu.Unlock()
					outcomes[a.Outcome]++
				}},
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
				_, err := svc.Compact(t.Context(), get(t, svc, "s"), adk.CompactOptions{})
				fails(t, err, c.err)
			}
			if get(t, svc, "s").Events().Len() != 1+2*20+1 {
				t.Error("something was written")
			}
		})
	}
}

// Who is asked before events are summarised sees them, and what it says must be kept is
// kept. A veto leaves the session as it is, and a focus reaches the summarizer.
func TestPrepare(t *testing.T) {
	var mu sync.Mutex
	var asked []adk.Proposal
	var focus string
	veto := errors.New("not these")
	refuses := false
	svc := compacted(t, adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: compaction.SummarizerFunc(
			func(_ context.Context, req compaction.Request) (compaction.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				focus = req.Focus
				return compaction.Response{Text: "They talked."}, nil
			})},
		Hooks: adk.Hooks{Prepare: func(_ context.Context, p adk.Proposal) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if refuses {
				return "", veto
			}
			asked = append(asked, p)
			return "The gate code must be kept.", nil
		}},
		CompactionTimeout: -1,
	})
	mu.Lock()
	refuses = true
	mu.Unlock()
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	before := ids(get(t, svc, "s"))
	_, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
	fails(t, err, compaction.ErrVetoed)
	fails(t, err, veto)
	equal(t, "events after a veto", ids(get(t, svc, "s")), before)

	mu.Lock()
	refuses = false
	mu.Unlock()
	_, err = svc.Compact(t.Context(), sess, adk.CompactOptions{Focus: "gate codes"})
	no(t, err)
	mu.Lock()
	defer mu.Unlock()
	equal(t, "focus", focus, "gate codes")
	if len(asked) == 0 || len(asked[0].Events) == 0 || asked[0].Events[0].ID != before[0] || asked[0].Trigger != compaction.ByInterval || asked[0].Merge {
		t.Fatalf("asked about %+v", asked)
	}
	equal(t, "whose", []string{asked[0].AppName, asked[0].UserID, asked[0].SessionID}, []string{"app", "user", "s"})
	equal(t, "summary", get(t, svc, "s").Events().At(0).Content.Parts[0].Text, "They talked.\nThe gate code must be kept.")
}
