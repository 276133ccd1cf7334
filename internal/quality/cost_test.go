package quality_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/price"
	"github.com/patchlog-dev/patchlog/internal/quality"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// costing returns a session with the given number of invocations. It calls calls for the number of calls in an
// invocation, and length for the length of each text.
func costing(t testlog.Failer, invocations int, calls func() int, length func(what string) int) quality.Recording {
	var events []*patch.Event
	words := func(what string) string { return strings.Repeat(what+" and then some ", length(what)) }
	for i := range invocations {
		inv := fmt.Sprint("i", i)
		events = append(events, say("u"+inv, inv, "user", words("asked"), nil))
		for j := range calls() {
			id := fmt.Sprint("c", j, inv)
			events = append(events, say(id, inv, "model", "", map[string]any{"n": j}), answer("r"+id, inv, id, words("found")))
		}
		events = append(events, say("a"+inv, inv, "model", words("told"), nil))
	}
	return testlog.Must(quality.Record(events))(t)
}

// Compaction never makes a session more than 10 % dearer, apart from a small amount per pass. The rule holds wherever
// the session ends, as long as the session has fewer tokens than the limit that forces passes.
func TestPropertyNoSessionIsDearer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.SampledFrom([]int{1, 10, 100, 400})
		rec := costing(rt, rapid.IntRange(1, 60).Draw(rt, "invocations"),
			func() int { return rapid.IntRange(0, 3).Draw(rt, "calls") },
			func(what string) int { return size.Draw(rt, what) })
		cfg := compaction.Config{Enabled: true, CompactionInterval: rapid.IntRange(1, 5).Draw(rt, "interval"), OverlapSize: 1,
			ClearAfter: rapid.SampledFrom([]int{0, 100, 2_000}).Draw(rt, "clear after")}
		if rapid.Bool().Draw(rt, "paid") {
			cfg.Summarizer = paid{}
		}
		none, paying := replay(t, rec, quality.None()), replay(t, rec, quality.Compact("paying", cfg))
		if rec.Tokens() < 32_000 && paying.Cost() > 1.1*none.Cost()+float64(1_000*paying.Passes) {
			rt.Fatalf("it costs %.0f, without compaction %.0f; %+v", paying.Cost(), none.Cost(), paying)
		}
	})
}

func TestLongSessionIsCheaper(t *testing.T) {
	rec := costing(t, 60, func() int { return 2 }, func(string) int { return 100 })
	none := replay(t, rec, quality.None())
	f := replay(t, rec, quality.Compact("free", compaction.Config{Enabled: true, CompactionInterval: 3, OverlapSize: 1}))
	if f.Cost() >= 0.8*none.Cost() {
		t.Errorf("it costs %.0f, without compaction %.0f", f.Cost(), none.Cost())
	}
}

// paid is the offline summarizer with a price for its tokens.
type paid struct{ compaction.Extractive }

func (paid) Price() (read, written float64) { return price.Read, price.Written }
