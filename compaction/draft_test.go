package compaction_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Who is asked sees what is logged then, and what that stands for.
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
	done[0].Took = d.Written.Took
	if d.Key != key || d.View.Len() != 7 || d.Written != done[0] {
		t.Errorf("the draft of %v is of %d events, %+v, and written was %+v", d.Key, d.View.Len(), d.Written, done[0])
	}
	of := 0
	for _, sum := range d.Summaries {
		i, ok := s.view().Find(sum.Event.ID())
		if !ok || !s.view().Entry(i).Summary {
			t.Errorf("%s was not logged", sum.Event)
		}
		for _, e := range sum.Of {
			if e.Branch() != sum.Event.Branch() {
				t.Errorf("%s stands for %s", sum.Event, e)
			}
		}
		of += len(sum.Of)
	}
	if len(d.Summaries) != 2 || of != 7 {
		t.Errorf("%d summaries stand for %d events", len(d.Summaries), of)
	}
	var logged []string
	for _, p := range s.patches() {
		logged = append(logged, p.ID())
	}
	var drafted []string
	for _, p := range d.Patches {
		drafted = append(drafted, p.ID())
	}
	if strings.Join(logged, " ") != strings.Join(drafted, " ") {
		t.Errorf("logged are %v, shown were %v", logged, drafted)
	}
}

// A veto leaves the session as it is, and is not asked for again at once.
func TestVeto(t *testing.T) {
	s := newSession(t, "u1*60 a1*60 u2*60 a2*60")
	secret := errors.New("it names a secret")
	var lines bytes.Buffer
	var seen []compaction.Attempt[store.Key]
	asked, against := 0, true
	sum := &scripted{}
	fallback := &scripted{}
	cfg := every(2, 0, sum)
	cfg.Fallback = fallback
	c := s.with(cfg, compaction.Options[store.Key]{
		Logger:  slog.New(slog.NewTextHandler(&lines, nil)),
		Observe: func(_ context.Context, a compaction.Attempt[store.Key]) { seen = append(seen, a) },
		Approve: func(_ context.Context, d compaction.ApproveRequest[store.Key]) error {
			clear(d.Patches)
			for i := range d.Summaries {
				clear(d.Summaries[i].Of)
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
	if got := c.Stats(); got.Vetoed != 1 || got.Failed != 0 || len(seen) != 1 || seen[0].Outcome != compaction.Vetoed || !errors.Is(seen[0].Err, secret) {
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
	// Who asks for it is not made to wait.
	before = sessionText(t, s)
	if _, err := c.Compact(t.Context(), key, compaction.Run{Force: true}); !errors.Is(err, compaction.ErrVetoed) || sessionText(t, s) != before {
		t.Errorf("asked for again: %v", err)
	}
	against = false
	if done, err := c.Compact(t.Context(), key, compaction.Run{Force: true}); len(done) != 1 || err != nil {
		t.Errorf("asked for again: %v, %v", done, err)
	}
}

// An approval that never comes holds nobody up for longer than the time allows, nor do many.
func TestApprovalThatHangs(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	var asked atomic.Int32
	s := newSession(t, "u1*60 a1*60")
	cfg := every(1, 0, &scripted{})
	cfg.Timeout = 5 * time.Millisecond
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
}

// What a summarizer is asked outside any session is what a compactor would ask.
func TestNewRequest(t *testing.T) {
	s := newSession(t, "u1*60 a1*60 u2*60 a2*60")
	sum := &scripted{}
	cfg := every(2, 0, sum)
	cfg.PromptTemplate = "In " + compaction.Words + " words: " + compaction.History
	r, err := compaction.NewRequest(cfg, events(s.view())...)
	if err != nil {
		t.Fatal(err)
	}
	s.compact(cfg)
	if asked := sum.requests[0]; asked.Prompt != r.Prompt || asked.AimTokens != r.AimTokens || asked.MaxTokens != r.MaxTokens || len(asked.Events) != len(r.Events) {
		t.Errorf("made is\n%+v\nasked was\n%+v", r, asked)
	}
	for name, bad := range map[string][]*patch.Event{"none": nil, "nil": {nil}} {
		if _, err := compaction.NewRequest(cfg, bad...); !errors.Is(err, patch.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := compaction.NewRequest(compaction.Config{Enabled: true}, r.Events...); !errors.Is(err, patch.ErrInvalid) {
		t.Error(err)
	}
}
