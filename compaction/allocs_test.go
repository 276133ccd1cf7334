package compaction_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// Planning allocates for the log and for invocations, not for each event.
func TestPlanAllocates(t *testing.T) {
	const n = 10_000
	var records []patch.Record
	for i, e := range testlog.Turns(0, n) {
		records = append(records, patch.Record{Seq: uint64(i + 1), Event: e})
	}
	v, err := fold.New("", nil).Apply(records...)
	if err != nil {
		t.Fatal(err)
	}
	cfg := compaction.DefaultConfig()
	cfg.TokenThreshold = 1_000_000
	allocs := testing.AllocsPerRun(5, func() {
		if d, err := compaction.Plan(v, cfg, compaction.Run{Force: true}); err != nil || d.Window == nil {
			t.Fatal(d, err)
		}
	})
	if allocs > n/20 {
		t.Errorf("%.0f allocations to plan on %d events", allocs, n)
	}
}
