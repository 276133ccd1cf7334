package bench_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/bench/locomo"
)

// BenchmarkLoCoMo asks LoCoMo's questions of indexes of its conversations. %-hit is of how many a
// turn with the answer is among the ten best; an op is to index the ten conversations and to ask all
// of the questions. bench/peers has another index beside it.
func BenchmarkLoCoMo(b *testing.B) {
	for _, c := range []struct {
		said     string
		captions bool
	}{{"text", false}, {"text+captions", true}} {
		b.Run("said="+c.said, func(b *testing.B) {
			conversations := locomo.Read(b, c.captions)
			var hits locomo.Hits
			for b.Loop() {
				hits = locomo.Measure(conversations, locomo.Recall)
			}
			hits.Report(b)
		})
	}
}
