package fold_test

import (
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// No operation of the table allocates more often than its row allows.
func TestAllocations(t *testing.T) {
	if testlog.Race {
		t.Skip("the race detector allocates too")
	}
	var log []patch.Record
	for n := range 2000 {
		log = append(log, patch.Record{Seq: uint64(n + 1), Event: event(fmt.Sprint("e", n), "k=1")})
	}
	v := testlog.Must(fold.New("", nil).Apply(log...))(t)
	next := patch.Record{Seq: v.Seq() + 1, Event: event("next", "k=2")}
	splice := patch.Record{Seq: v.Seq() + 1, Patch: patch.NewSplice(1000, 10, event("r")).WithID("p")}
	do := func(r patch.Record) func() {
		return func() {
			if _, err := v.Apply(r); err != nil {
				t.Error(err)
			}
		}
	}
	for name, c := range map[string]struct {
		most float64
		do   func()
	}{
		"applying an event": {15, do(next)},
		"applying a patch":  {18, do(splice)},
		"judging a patch":   {8, func() { _ = v.Check(splice.Patch, fold.CheckOptions{}) }},
		"looking at events": {0, func() { _ = v.At(1500) }},
		"going over events": {0, func() {
			for range v.Events() {
			}
		}},
		"one value of state": {0, func() { _, _ = v.Value("k") }},
		"a binary form":      {6, func() { _, _ = v.AppendBinary(nil) }},
	} {
		c.do() // fill the view's caches
		if n := testing.AllocsPerRun(50, c.do); n > c.most {
			t.Errorf("%s: %v allocations, at most %v", name, n, c.most)
		}
	}
}

// RevertTargets does not collect reverts that are older than the patch.
func TestRevertTargetsSearchIsBounded(t *testing.T) {
	v := view(t, "e1", "e2")
	apply := func(p *patch.PatchEvent) {
		if v = logged(t, v, patch.Record{Patch: p}); v.SkippedCount() > 0 {
			t.Fatal(p)
		}
	}
	allocs := func(id string) float64 {
		return testing.AllocsPerRun(5, func() {
			if ids, err := v.RevertTargets(id); err != nil || ids[0] != id {
				t.Fatal(ids, err)
			}
		})
	}
	few := 0.0
	for i := range 2000 {
		id := fmt.Sprint("p", i)
		apply(patch.NewSplice(0, 1).WithID(id))
		if i == 0 {
			few = allocs(id)
		}
		apply(patch.NewRevert(id).WithID("r" + id))
	}
	for i, group := range []string{"", "g"} {
		id := fmt.Sprint("last", i)
		apply(patch.NewSplice(0, 1).WithID(id).WithGroup(group))
		if many := allocs(id); many > few {
			t.Errorf("group %q: %v allocations after 2,000 reverts, %v before", group, many, few)
		}
	}
}
