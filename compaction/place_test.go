package compaction_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
)

// A summary stands where the last event stood that it stands for, though the
// window that it was made for is behind that: what ends a task stays the last of its scope.
func TestSummaryBehindTheEndOfATask(t *testing.T) {
	for _, row := range []struct{ log, pin string }{
		// The call in the task is answered from outside, after the task's end.
		{"u1 T!/l1(x) T!/c1(f) T!/r1(f) a1 R2(x) a2", "e3"},
		{"u1 T!/a1 T!/l1(x,y) T!/c1(f) T!/r1(f) a1 R2(x) u3 R4(y) a4", "e4"},
	} {
		s := newSession(t, row.log)
		if _, err := s.compactor(every(1, 0, &scripted{})).Compact(t.Context(), key, compaction.Run{Pinned: []string{row.pin}}); err != nil {
			t.Fatal(err)
		}
		last, summarised := "", false
		v := s.view()
		for i, e := range v.Events() {
			if e.IsolationScope() == "T" {
				last, summarised = e.ID(), summarised || v.Entry(i).Summary
			}
		}
		if last != row.pin || !summarised {
			t.Errorf("%q: the last of the task is %s, and a summary: %v: %s", row.log, last, summarised, s.visible())
		}
	}
}

// A summary is by who said all that it stands for, or else by the user.
func TestAuthorOfASummary(t *testing.T) {
	for _, row := range []struct{ log, want string }{
		{"u1 u1", "user"},
		{"a1 c1(x) r1(x)", "agent"},
		{"u1 a1", "user"},
		{"c1(x) R1(x)", "user"},
	} {
		s := newSession(t, row.log)
		done := s.compact(every(1, 0, &scripted{}))
		if len(done) != 1 || s.view().Len() != 1 || s.view().At(0).Author() != row.want {
			t.Errorf("%q gives %s by %q, want %q", row.log, s.visible(), s.view().At(0).Author(), row.want)
		}
	}
	merged := newSession(t, "a1 a1")
	merged.compact(every(1, 0, &scripted{}))
	merged.append("u2 a2")
	merged.compact(with(every(1, 0, &scripted{}), func(c *compaction.Config) { c.Limits().Summaries = 2 }))
	if merged.view().Len() != 1 || merged.view().At(0).Author() != "user" {
		t.Errorf("merged: %s by %q", merged.visible(), merged.view().At(0).Author())
	}
}
