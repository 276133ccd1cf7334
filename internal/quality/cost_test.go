package quality_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/price"
	"github.com/patchlog-dev/patchlog/internal/quality"
	"github.com/patchlog-dev/patchlog/patch"
)

// No session becomes more than a tenth dearer than without compaction, and a trifle for each
// pass, wherever it ends, while its prompts are below the limit that is held at any cost; and some
// become much cheaper.
func TestPropertyNoSessionIsDearer(t *testing.T) {
	cheaper := 0
	rapid.Check(t, func(rt *rapid.T) {
		var events []*patch.Event
		size := rapid.SampledFrom([]int{1, 10, 100, 400})
		for i := range rapid.IntRange(1, 60).Draw(rt, "invocations") {
			inv := fmt.Sprint("i", i)
			words := func(what string) string {
				return strings.Repeat(what+" and then some ", size.Draw(rt, what))
			}
			events = append(events, say("u"+inv, inv, "user", words("asked"), nil))
			for j := range rapid.IntRange(0, 3).Draw(rt, "calls") {
				id := fmt.Sprint("c", j, inv)
				events = append(events, say(id, inv, "model", "", map[string]any{"n": j}), answer("r"+id, inv, id, words("found")))
			}
			events = append(events, say("a"+inv, inv, "model", words("told"), nil))
		}
		rec, err := quality.Record(events)
		if err != nil {
			rt.Fatal(err)
		}
		cfg := compaction.Config{Enabled: true, CompactionInterval: rapid.IntRange(1, 5).Draw(rt, "interval"), OverlapSize: 1,
			ClearAfter: rapid.SampledFrom([]int{0, 100, 2_000}).Draw(rt, "clear after")}
		if rapid.Bool().Draw(rt, "paid") {
			cfg.Summarizer = paid{}
		}
		none, paying := replay(t, rec, quality.None()), replay(t, rec, quality.Compact("paying", cfg))
		if rec.Tokens() < 32_000 && paying.Cost() > 1.1*none.Cost()+float64(1_000*paying.Passes) {
			rt.Fatalf("it costs %.0f, without compaction %.0f; %+v", paying.Cost(), none.Cost(), paying)
		}
		if paying.Cost() < 0.8*none.Cost() {
			cheaper++
		}
	})
	if cheaper == 0 {
		t.Error("no session became cheaper")
	}
}

// paid is the offline summarizer, read and written for money.
type paid struct{ compaction.Extractive }

func (paid) Price() (read, written float64) { return price.Read, price.Written }
