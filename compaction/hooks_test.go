package compaction_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// The focus that a summarizer gets is a single line of limited length.
func TestFocus(t *testing.T) {
	for _, row := range []struct{ focus, want string }{
		{"", ""},
		{"the  colours\nand\u2028sizes", "the colours and sizes"},
		{strings.Repeat("ü", 5_000), strings.Repeat("ü", compaction.MaxFocus-1) + "…"},
		{compaction.TranscriptPlaceholder, compaction.TranscriptPlaceholder},
	} {
		s := newSession(t, "u1*100 a1*100")
		sum := &scripted{}
		c := s.compactor(every(1, 0, sum))
		testlog.Must(c.Compact(t.Context(), key, compaction.Run{Focus: row.focus}))(t)
		r := sum.requests[0]
		if r.Focus != row.want {
			t.Errorf("%.20q: the focus is %.40q", row.focus, r.Focus)
		}
		begins := "Above all, keep what concerns this: " + row.want + "\n\n<conversation>\n"
		if row.want == "" {
			begins = "<conversation>\n"
		}
		if !strings.HasPrefix(r.Prompt, begins) {
			t.Errorf("%.20q: the prompt begins with %.200q", row.focus, r.Prompt)
		}
	}
}

func preparing(t *testing.T, s *session, cfg compaction.Config, prepare func(context.Context, compaction.PrepareRequest[store.Key]) (string, error)) *compaction.Compactor[store.Key] {
	t.Helper()
	c := s.with(cfg, compaction.Options[store.Key]{Prepare: prepare, Logger: slog.New(slog.DiscardHandler)})
	return c
}

// The summary ends with the text that Prepare returns, cut to the size limit.
func TestPrepareKeeps(t *testing.T) {
	for _, row := range []struct{ name, keep, want string }{
		{"nothing", " ", "told"},
		{"a line", "the gate is 4711\n", "told\nthe gate is 4711"},
		{"too much", strings.Repeat("x", 1_000), "told\n" + strings.Repeat("x", 299) + "…"},
	} {
		s := newSession(t, "u1*100 a1*100")
		sum := &scripted{}
		var asked []compaction.PrepareRequest[store.Key]
		c := preparing(t, s, every(1, 0, sum), func(_ context.Context, p compaction.PrepareRequest[store.Key]) (string, error) {
			asked = append(asked, p)
			clear(p.Events) // Prepare may modify the slice of events
			return row.keep, nil
		})
		if _, err := c.MaybeCompact(t.Context(), key); err != nil {
			t.Fatal(row.name, err)
		}
		if got := testlog.FirstText(s.view().At(0)); got != row.want {
			t.Errorf("%s: the summary is %q, want %q", row.name, got, row.want)
		}
		if len(asked) != 1 || len(asked[0].Events) != 2 || asked[0].Key != key || asked[0].Trigger != compaction.ByInterval || asked[0].View.Len() != 2 || asked[0].Merge {
			t.Errorf("%s: asked was %+v", row.name, asked)
		}
		if r := sum.requests[0]; r.MaxTokens+patch.EstimateTextTokens(strings.TrimPrefix(row.want, "told")) > 150 || r.AimTokens > r.MaxTokens {
			t.Errorf("%s: the summarizer may say %d tokens, and aims at %d", row.name, r.MaxTokens, r.AimTokens)
		}
	}
}

// If Prepare returns an error, panics or hangs, the pass fails. The summarizer is not called.
func TestPrepareVetoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no")
		release := make(chan struct{})
		t.Cleanup(func() { close(release) })
		for _, row := range []struct {
			name    string
			prepare func(context.Context, compaction.PrepareRequest[store.Key]) (string, error)
			want    error
			outcome compaction.Outcome
		}{
			{"veto", func(context.Context, compaction.PrepareRequest[store.Key]) (string, error) { return "kept", no }, no, compaction.Vetoed},
			{"panic", func(context.Context, compaction.PrepareRequest[store.Key]) (string, error) { panic("no") }, compaction.ErrPanic, compaction.Failed},
			{"hangs", func(context.Context, compaction.PrepareRequest[store.Key]) (string, error) { <-release; return "", nil }, context.DeadlineExceeded, compaction.Failed},
		} {
			s := newSession(t, "u1*100 a1*100")
			sum := &scripted{}
			c := preparing(t, s, with(every(1, 0, sum), func(c *compaction.Config) { c.Limits().CallTimeout = 20 * time.Millisecond }), row.prepare)
			if _, err := c.MaybeCompact(t.Context(), key); !errors.Is(err, row.want) {
				t.Errorf("%s: the error is %v", row.name, err)
			}
			if n := c.Stats()[row.outcome]; n != 1 || sum.calls() != 0 || s.visible() != "e0 e1" {
				t.Errorf("%s: %+v, %d calls, visible is %s", row.name, c.Stats(), sum.calls(), s.visible())
			}
		}
	})
}

// Approve gets the patches that will be logged, and the events that they cover.
func TestApprove(t *testing.T) {
	s := newSession(t, "u1*60 A/c1(x) A/r1(x)*60 d1 a1*60 u2*60 a2*60")
	var asked []compaction.ApproveRequest[store.Key]
	c := s.with(every(2, 0, &scripted{}), compaction.Options[store.Key]{Approve: func(_ context.Context, d compaction.ApproveRequest[store.Key]) error {
		if s.view().PatchSeq() != 0 {
			t.Error("something was logged before the approval")
		}
		asked = append(asked, d)
		return nil
	}})
	done, err := c.MaybeCompact(t.Context(), key)
	if err != nil || len(done) != 1 || len(asked) != 1 {
		t.Fatalf("%v, %v; asked %d times", done, err, len(asked))
	}
	d := asked[0]
	done[0].Duration = d.Written.Duration
	if d.Key != key || d.View.Len() != 7 || d.Written != done[0] {
		t.Errorf("the draft of %v is of %d events, %+v, and written was %+v", d.Key, d.View.Len(), d.Written, done[0])
	}
	of := 0
	for _, sum := range d.Summaries {
		i, ok := s.view().Find(sum.Event.ID())
		if !ok || !s.view().Entry(i).Summary {
			t.Errorf("%s was not logged", sum.Event)
		}
		for _, e := range sum.Events {
			if e.Branch() != sum.Event.Branch() {
				t.Errorf("%s stands for %s", sum.Event, e)
			}
		}
		of += len(sum.Events)
	}
	if len(d.Summaries) != 2 || of != 7 {
		t.Errorf("%d summaries stand for %d events", len(d.Summaries), of)
	}
	if logged, drafted := patchIDs(s.patches()), patchIDs(d.Patches); !slices.Equal(logged, drafted) {
		t.Errorf("logged are %v, shown were %v", logged, drafted)
	}
}

// A veto leaves the session unchanged, and the compactor does not call Approve again at once.
func TestVeto(t *testing.T) {
	s := newSession(t, "u1*60 a1*60 u2*60 a2*60")
	secret := errors.New("it names a secret")
	var lines bytes.Buffer
	var seen []compaction.Attempt[store.Key]
	asked, against := 0, true
	sum := &scripted{}
	fallback := &scripted{}
	cfg := every(2, 0, sum)
	cfg.SetFallback(fallback)
	c := s.with(cfg, compaction.Options[store.Key]{
		Logger:  slog.New(slog.NewTextHandler(&lines, nil)),
		Observe: func(_ context.Context, a compaction.Attempt[store.Key]) { seen = append(seen, a) },
		Approve: func(_ context.Context, d compaction.ApproveRequest[store.Key]) error {
			clear(d.Patches)
			for i := range d.Summaries {
				clear(d.Summaries[i].Events)
				d.Summaries[i].Event = nil
			}
			if asked++; against {
				return secret
			}
			return nil
		},
	})
	before := sessionText(t, s)
	done, err := c.MaybeCompact(t.Context(), key)
	if done != nil || !errors.Is(err, compaction.ErrVetoed) || !errors.Is(err, secret) {
		t.Errorf("MaybeCompact: %v, %v", done, err)
	}
	if after := sessionText(t, s); after != before {
		t.Errorf("the session was\n%s\nand is\n%s", before, after)
	}
	if lines.Len() > 0 {
		t.Errorf("logged is %s", lines.String())
	}
	if got := c.Stats(); got[compaction.Vetoed] != 1 || got[compaction.Failed] != 0 || len(seen) != 1 || seen[0].Outcome != compaction.Vetoed || !errors.Is(seen[0].Err, secret) {
		t.Errorf("%+v, %+v", got, seen)
	}
	for range 3 {
		if done, err := c.MaybeCompact(t.Context(), key); done != nil || err != nil || asked != 1 {
			t.Fatalf("again at once: %v, %v, asked %d times", done, err, asked)
		}
	}
	for range 100 {
		s.append("d3")
		_, _ = c.MaybeCompact(t.Context(), key)
	}
	if asked < 3 || asked > 8 || len(fallback.requests) > 0 {
		t.Errorf("asked %d times in 100 more records; the fallback %d times", asked, len(fallback.requests))
	}
	// A forced pass ignores the backoff.
	before = sessionText(t, s)
	if _, err := c.Compact(t.Context(), key, compaction.Run{Force: true}); !errors.Is(err, compaction.ErrVetoed) || sessionText(t, s) != before {
		t.Errorf("asked for again: %v", err)
	}
	against = false
	if done, err := c.Compact(t.Context(), key, compaction.Run{Force: true}); len(done) != 1 || err != nil {
		t.Errorf("asked for again: %v, %v", done, err)
	}
}

// If Approve does not return, the compaction ends at its timeout. While four such calls are running, other
// compactions fail without a call.
func TestApproveTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		var asked atomic.Int32
		s := newSession(t, "u1*60 a1*60")
		cfg := every(1, 0, &scripted{})
		cfg.Limits().CallTimeout = 5 * time.Millisecond
		c := s.with(cfg, compaction.Options[store.Key]{Approve: func(context.Context, compaction.ApproveRequest[store.Key]) error {
			asked.Add(1)
			<-release
			return nil
		}})
		for i := range 8 {
			_, err := c.Compact(t.Context(), key, compaction.Run{Force: true})
			if timedOut := errors.Is(err, context.DeadlineExceeded); err == nil || timedOut != (i < 4) || errors.Is(err, compaction.ErrVetoed) {
				t.Fatalf("attempt %d: %v", i, err)
			}
		}
		if asked.Load() != 4 || s.view().PatchSeq() != 0 {
			t.Errorf("asked %d times", asked.Load())
		}
	})
}
