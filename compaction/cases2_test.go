package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store"
)

func TestAnswersThatCannotBeUsed(t *testing.T) {
	long := func(context.Context, compaction.Request) (compaction.Response, error) {
		return says(strings.Repeat("a text that is longer than half of what it would stand for, and so of no use ", 5)), nil
	}
	for name, answer := range map[string]compaction.SummarizerFunc{
		"an answer that is refused":       refuses("it calls a function"),
		"an empty text":                   answers(" \n"),
		"cut off":                         stopped("MAX_TOKENS"),
		"blocked":                         stopped("SAFETY"),
		"more than half of what there is": long,
	} {
		s := newSession(t, "u1*40 a1*40 u2*40 a2*40")
		before := s.view()
		c := s.compactor(every(2, 0, answer))
		done, err := c.MaybeCompact(t.Context(), key)
		var refused *compaction.SummarizerError
		if done != nil || !errors.Is(err, compaction.ErrRefusedAnswer) || !errors.As(err, &refused) || refused.Count != 4 {
			t.Errorf("%s: %v, %v", name, done, err)
		}
		if after := s.view(); after.Seq() != before.Seq() || s.visible() != "e0 e1 e2 e3" {
			t.Errorf("%s: the session changed: %s", name, s.visible())
		}
		if got := c.Stats(); got.Failed != 1 || got.Wrote != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTinyBranchKeepsNobodyWaiting(t *testing.T) {
	s := newSession(t, "u1*500 a1*500 B/a1*1 u2*500 a2*500")
	if done := s.compact(every(2, 0, &scripted{})); len(done) != 1 || done[0].EventsAfter != 2 {
		t.Errorf("%+v", done)
	}
}

// What compaction wrote can be taken back, newest first, also where a window went in as
// several patches; the view is then as it was.
func TestCompactionIsTakenBack(t *testing.T) {
	s := newSession(t, "u1 l1(x) r1(x) d1 a1 u2 d2 a2 u3 a3")
	c := s.compactor(every(2, 1, &scripted{}))
	compact := func() {
		if _, err := c.MaybeCompact(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	compact()
	s.append("R4(x) a4 d4 u5 a5")
	before, state := s.visible(), s.state()
	compact()
	if s.visible() == before || s.state() != state {
		t.Fatalf("visible is %s, state %s", s.visible(), s.state())
	}
	var ids []string
	for r, err := range s.store.RawEvents(t.Context(), key, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Patch != nil {
			ids = append(ids, r.ID())
		}
	}
	split := 0
	for _, id := range slices.Backward(ids) {
		reverted, err := s.store.Revert(t.Context(), key, store.UndoOptions{}, id)
		if errors.Is(err, fold.ErrBlocked) && strings.Contains(err.Error(), "taken back already") {
			continue // with another patch of its window
		}
		if err != nil {
			t.Fatalf("revert of %s: %v", id, err)
		}
		split = max(split, len(reverted.Records))
		if s.state() != state {
			t.Fatalf("the state is %s, was %s", s.state(), state)
		}
		if s.visible() == before {
			break
		}
	}
	if s.visible() != before || split < 2 {
		t.Errorf("with at most %d reverts at once visible is %s, was %s", split, s.visible(), before)
	}
	compact()
	if s.state() != state || s.visible() == before {
		t.Errorf("compacted again, visible is %s, state %s", s.visible(), s.state())
	}
}

// A window of so little that no answer can be used does not keep the others waiting.
func TestSmallWindowIsPassedOver(t *testing.T) {
	s := newSession(t, "u1*1 u2*50 a2*50 u3*50 a3*50")
	sum := &scripted{reply: func(r compaction.Request) (compaction.Response, error) {
		return says("an answer of some length, but less than half of what is worth it"), nil
	}}
	c := s.compactor(every(1, 0, sum))
	pinned := compaction.Run{Pinned: []string{"e1"}}
	small := 0
	for i := range 60 {
		_, err := c.Compact(t.Context(), key, pinned)
		if errors.Is(err, compaction.ErrRefusedAnswer) {
			small++
		} else if err != nil {
			t.Fatal(err)
		}
		s.append(fmt.Sprintf("u%d*50 a%d*50", 9+i, 9+i))
	}
	if small > 3 {
		t.Errorf("the small window was refused %d times", small)
	}
	if n := s.view().Len(); n > 20 {
		t.Errorf("%d events are visible: %s", n, s.visible())
	}
}

// A tail that alone is over the threshold must not make a rolling summary of what is in
// front of it.
func TestNoRollingSummary(t *testing.T) {
	s := newSession(t, "")
	sum := &scripted{}
	c := s.compactor(compaction.Config{Enabled: true, TokenThreshold: 100, EventRetentionSize: 2, Summarizer: sum})
	for i := range 60 {
		s.append(fmt.Sprintf("u%d*50 a%d*50", i, i))
		if _, err := c.MaybeCompact(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	first := compaction.LineageOf(s.view().At(0))
	if first.Passes > 4 {
		t.Errorf("turn 1 passed through %d summarisations: %s", first.Passes, s.visible())
	}
}

func TestCallWithoutRole(t *testing.T) {
	s := newSession(t, "u1 a1 u2 a2")
	call := parseEvent(t, event{"author": "agent", "invocationId": "inv3", "content": map[string]any{"parts": []any{map[string]any{"functionCall": map[string]any{"id": "x", "name": "tool"}}}}})
	if _, err := s.store.AppendEvents(t.Context(), key, store.AppendOptions{}, call); err != nil {
		t.Fatal(err)
	}
	s.compact(every(2, 0, &scripted{}))
	if !strings.HasPrefix(s.visible(), "S1:user ") {
		t.Errorf("visible is %q", s.visible())
	}
}

func TestTwoCompactors(t *testing.T) {
	s := newSession(t, "u1 a1 u2 a2")
	var both sync.WaitGroup
	both.Add(2)
	sum := compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		both.Done()
		both.Wait() // both have planned on the same view
		return says("told"), nil
	})
	var wrote, conflicts uint64
	var mu sync.Mutex
	var ended sync.WaitGroup
	for range 2 {
		c := s.compactor(every(2, 0, sum))
		ended.Go(func() {
			if _, err := c.MaybeCompact(t.Context(), key); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			wrote += c.Stats().Wrote
			conflicts += c.Stats().Conflicts
		})
	}
	ended.Wait()
	if wrote != 1 || conflicts != 1 {
		t.Errorf("%d wrote, %d saw a conflict", wrote, conflicts)
	}
	s.want("S1:user")
}

// A window whose answers are refused again and again does not keep the others waiting.
func TestRefusedWindowIsPassedOver(t *testing.T) {
	s := newSession(t, "u1*200 a1*200")
	sum := &scripted{reply: func(r compaction.Request) (compaction.Response, error) {
		if r.Events[0].ID() == "e0" {
			resp := says("told")
			resp.FinishReason = "SAFETY"
			return resp, nil
		}
		return says("told"), nil
	}}
	c := s.compactor(with(every(1, 0, sum), func(c *compaction.Config) { c.TokenThreshold, c.Fallback = 300, declines{} }))
	refused := 0
	for i := range 60 {
		_, err := c.MaybeCompact(t.Context(), key)
		if errors.Is(err, compaction.ErrRefusedAnswer) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
		s.append(fmt.Sprintf("c%d(x%d)*50 r%d(x%d)*50", 9+i, i, 9+i, i))
	}
	if n := s.view().Len(); n > 40 || refused > 10 {
		t.Errorf("%d events are visible after %d refusals: %s", n, refused, s.visible())
	}
}

// A response that comes while the call's window is summarised keeps its call, also where
// the window goes in as several patches.
func TestAnsweredWhileSummarised(t *testing.T) {
	for _, row := range []struct{ log, late, want string }{
		{"u1*20 c1(x)*20 u2*20 c2(z) u3*20", "r4(x)", "x→ e5, z→"},
		// The first part of c1(x,y), tied to r3(x), goes from before c2(z), which stays.
		{"u1*20 c1(x,y)*20 c2(z) u3*20 r3(x)*20 u4*20", "r5(y)", "x→ e4, y→ e6, z→"},
	} {
		s := newSession(t, row.log)
		sum := &scripted{}
		asked := 0
		sum.reply = func(compaction.Request) (compaction.Response, error) {
			if asked++; asked == 1 {
				s.append(row.late)
			}
			return says("told"), nil
		}
		c := s.compactor(with(every(2, 0, sum), func(c *compaction.Config) { c.Limits().OpenCalls = 1 }))
		if _, err := c.MaybeCompact(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := s.paired(); got != row.want || c.Stats().Conflicts != 1 {
			t.Errorf("%s, then %s: calls are %q, want %q; %+v", row.log, row.late, got, row.want, c.Stats())
		}
	}
}
