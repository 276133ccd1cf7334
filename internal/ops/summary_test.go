package ops

import (
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// A summary by hand covers the time of its events, says so, and does not stand as a model's turn
// before another one.
func TestSummaryByHand(t *testing.T) {
	v := fold.New("c", nil)
	for i, role := range []string{"user", "model", "user", "model"} {
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: string(rune('a' + i)), Author: role, Content: patch.Text(role, "said"), Timestamp: time.Unix([]int64{100, 103, 101, 102}[i], 0)}))(t)
		v = testlog.Must(v.Apply(patch.Record{Seq: uint64(i + 1), Event: e}))(t)
	}
	for _, c := range []struct {
		span     compaction.Span
		role     string
		from, to float64
	}{
		{compaction.Span{Start: 0, Count: 2}, "model", 100, 103},
		{compaction.Span{Start: 1, Count: 2}, "user", 101, 103},
		{compaction.Span{Start: 2, Count: 2}, "model", 101, 102},
		{compaction.Span{Start: 0, Count: 3}, "user", 100, 103},
		{compaction.Span{Start: 9, Count: 1}, "model", 0, 0},
		{compaction.Span{Start: -1, Count: -5}, "model", 0, 0},
	} {
		e := testlog.Must(SummaryByHand(v, c.span, "inv", "what was said"))(t)
		said, err := e.Compaction()
		if err != nil || said == nil {
			t.Fatalf("%v: no compaction: %v", c.span, err)
		}
		if e.Role() != c.role || said.StartTimestamp != c.from || said.EndTimestamp != c.to || e.ID() != "" || e.InvocationID() != "inv" || !e.IsSummary() {
			t.Errorf("%v: %s", c.span, e)
		}
	}
	if _, err := SummaryByHand(v, compaction.Span{Start: 0, Count: 1}, "inv", "\xff"); err == nil {
		t.Error("a text that is not UTF-8 is taken")
	}
}
