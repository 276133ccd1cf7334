package bench_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// BenchmarkPlan plans a compaction of a view that Plan has seen before. It forces the pass, so the cost of a pass does
// not matter.
func BenchmarkPlan(b *testing.B) {
	for _, c := range []struct {
		trigger string
		cfg     compaction.Config
	}{
		{"interval", compaction.DefaultConfig()},
		{"tokens", compaction.Config{Enabled: true, TokenThreshold: 1_000, EventRetentionSize: 20}},
		{"nothing", compaction.Config{Enabled: true, TokenThreshold: 1_000_000, EventRetentionSize: 20}},
	} {
		b.Run("events=10000/trigger="+c.trigger, func(b *testing.B) {
			v := viewOf(b, recordsOf(testlog.Turns(0, 10_000)))
			for b.Loop() {
				d, err := compaction.Plan(v, c.cfg, compaction.Run{Force: true})
				if err != nil || (d.Window != nil) != (c.trigger != "nothing") {
					b.Fatal(d, err)
				}
			}
		})
	}
}
