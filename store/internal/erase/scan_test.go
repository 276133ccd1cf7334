package erase_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// Spread adds the content derived from an erased event at any depth and, with context, later summaries of the branch.
func TestScanSpreads(t *testing.T) {
	summary := func(id, own string) string {
		return `"summaryEvent":{"id":"` + id + `","content":{"parts":[{"text":"short"}]},"customMetadata":{"patchlog":{` + own + `}}}`
	}
	lines := []string{
		`{"id":"e1","author":"ann"}`, `{"id":"e2","author":"bob"}`, `{"id":"e3","author":"bob"}`, `{"id":"e4","author":"bob"}`,
		`{"id":"p5","patchType":"summarise","start":0,"count":2,` + summary("s5", `"windows":1`) + `}`,
		`{"id":"p6","patchType":"summarise","start":1,"count":1,` + summary("s6", `"windows":1,"shown":[[1,1]]`) + `}`,
		`{"id":"p7","patchType":"summarise","start":0,"count":2,` + summary("s7", `"windows":2`) + `}`,
		`{"id":"p8","patchType":"summarise","start":1,"count":1,` + summary("s8", `"windows":1`) + `}`,
	}
	for context, want := range []map[string]string{
		{"e1": erase.WhySelected, "s5": erase.WhyReplaces, "s6": erase.WhyShown, "s7": erase.WhyReplaces},
		{"e1": erase.WhySelected, "s5": erase.WhyReplaces, "s6": erase.WhyShown, "s7": erase.WhyReplaces, "s8": erase.WhyShown},
	} {
		v, s := fold.New("c", nil), erase.NewScan()
		var log []patch.Record
		for i, line := range lines {
			r := testlog.Record(line)
			r.Seq = uint64(i + 1)
			log = append(log, r)
			v = testlog.Must(v.WithRecords(log).Apply(r))(t)
			s.Record(r, func(patch.Record) (bool, func(int, *patch.Event) bool) {
				return false, func(_ int, e *patch.Event) bool { return e.Author() == "ann" }
			}, patch.KeepValues)
		}
		testlog.NoError(t, s.Spread(v.WithRecords(log), context == 1))
		got := map[string]string{}
		for _, e := range s.Events(true) {
			got[e.ID] = e.Why
		}
		testlog.Equal(t, "what goes", got, want)
		if context == 0 {
			var of patch.Erasure
			s.Cover(&of, s.Events(true))
			testlog.Equal(t, "spans", of.Seqs, []patch.Span{{From: 1, To: 1}, {From: 5, To: 7}})
		}
	}
}

// Two sessions share the records that one inherited from the other, or that both inherited from a common ancestor.
func TestCommon(t *testing.T) {
	root := erase.Session{Head: backend.Head{Creation: "root"}}
	child := func(of erase.Session, creation string, at uint64) erase.Session {
		return erase.Session{Head: backend.Head{Creation: creation}, Lineage: erase.ExtendLineage(of.Head.Creation, of.Lineage, at)}
	}
	a := child(root, "a", 10)
	b, c, d := child(root, "b", 7), child(a, "c", 4), child(a, "d", 0)
	for name, of := range map[string]struct {
		x, y    erase.Session
		n       uint64
		related bool
	}{
		"itself": {root, root, ^uint64(0), true}, "a fork": {root, a, 10, true}, "a fork of a fork": {root, c, 4, true}, "siblings": {a, b, 7, true},
		"a sibling's fork": {b, c, 4, true}, "a fork of nothing": {a, d, 0, true}, "strangers": {a, erase.Session{Head: backend.Head{Creation: "x"}}, 0, false},
	} {
		for range 2 {
			n, related := erase.CommonRecords(of.x, of.y)
			if n != of.n || related != of.related {
				t.Errorf("%s: %d, %v", name, n, related)
			}
			of.x, of.y = of.y, of.x
		}
	}
	testlog.Equal(t, "family", []string{erase.Family("c", c.Lineage), erase.Family("root", nil)}, []string{"root", "root"})
	testlog.Equal(t, "cut", erase.LimitLineage(c.Lineage, 2), []erase.Ancestor{{Creation: "root", Seq: 2}, {Creation: "a", Seq: 2}})
}
