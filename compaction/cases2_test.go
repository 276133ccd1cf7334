package compaction_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

// What compaction wrote can be taken back, newest first, also where a window went in as
// several patches; the view is then as it was.
func TestCompactionIsTakenBack(t *testing.T) {
	s := newSession(t, "u1 l1(x) r1(x) d1 a1 u2 d2 a2 u3 a3")
	c := s.compactor(every(2, 1, &scripted{}))
	compact := func() {
		s.run(c)
	}
	compact()
	s.append("R4(x) a4 d4 u5 a5")
	before, state := s.visible(), s.state()
	compact()
	if s.visible() == before || s.state() != state {
		t.Fatalf("visible is %s, state %s", s.visible(), s.state())
	}
	var ids []string
	for _, p := range s.patches() {
		ids = append(ids, p.ID())
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
		s.run(c)
	}
	first := compaction.LineageOf(s.view().At(0))
	if first.Passes > 4 {
		t.Errorf("turn 1 passed through %d summarisations: %s", first.Passes, s.visible())
	}
}

func TestCallWithoutRole(t *testing.T) {
	s := newSession(t, "u1 a1 u2 a2")
	call := testlog.EventOf(t, event{"author": "agent", "invocationId": "inv3", "content": map[string]any{"parts": []any{map[string]any{"functionCall": map[string]any{"id": "x", "name": "tool"}}}}})
	s.add(call)
	s.compact(every(2, 0, &scripted{}))
	if !strings.HasPrefix(s.visible(), "S1:user ") {
		t.Errorf("visible is %q", s.visible())
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
		s.run(c)
		if got := s.paired(); got != row.want || c.Stats().Conflicts != 1 {
			t.Errorf("%s, then %s: calls are %q, want %q; %+v", row.log, row.late, got, row.want, c.Stats())
		}
	}
}
