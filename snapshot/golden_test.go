package snapshot_test

import (
	"flag"
	"os"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
)

// Set this flag to write the golden snapshot after a change of the format.
var writeGolden = flag.Bool("write-golden", false, "write the golden snapshot")

// goldenSnapshot is a snapshot in version 1 of the view after [goldenLog].
const goldenSnapshot = "testdata/golden.snapshot"

var goldenLog = []string{
	`{"id":"e1","invocationId":"i1","author":"user","content":{"role":"user","parts":[{"text":"one"}]},"actions":{"stateDelta":{"n":1}}}`,
	`{"id":"e2","invocationId":"i1","author":"agent","content":{"role":"model","parts":[{"text":"two"}]},"actions":{"stateDelta":{"n":2}}}`,
	`{"id":"e3","invocationId":"i2","author":"user","content":{"role":"user","parts":[{"text":"three"}]}}`,
	`{"id":"e4","invocationId":"i2","author":"agent","content":{"role":"model","parts":[{"text":"four"}]}}`,
	`{"id":"p1","author":"user","patchType":"summarise","start":0,"count":2,"base":0,"summaryEvent":{"id":"s1","author":"user","content":{"role":"user","parts":[{"text":"one and two"}]}}}`,
	`{"id":"p2","author":"user","patchType":"splice","start":1,"count":1,"base":5,"replacement":[{"id":"r1","author":"user","content":{"role":"user","parts":[{"text":"THREE"}]}}]}`,
	`{"id":"p3","author":"user","patchType":"pin","eventId":"e4"}`,
	`{"id":"p4","author":"user","patchType":"splice","start":9,"count":1}`,
	`{"id":"p5","author":"user","patchType":"revert","patchId":"p2"}`,
	`{"id":"e5","invocationId":"i3","author":"user","content":{"role":"user","parts":[{"text":"five"}]}}`,
}

// A snapshot in version 1, written when the format was frozen, restores the view of its log. Patches of the log
// can be reverted.
func TestGoldenSnapshot(t *testing.T) {
	var records []patch.Record
	for i, line := range goldenLog {
		r := testlog.Record(line)
		r.Seq = uint64(i + 1)
		records = append(records, r)
	}
	if *writeGolden {
		v := testlog.Must(fold.New("creation", initial).WithRecords(records).Apply(records...))(t)
		data := testlog.Must(snapshot.Encode(v))(t)
		testlog.NoError(t, os.WriteFile(goldenSnapshot, data, 0o644))
	}
	data := testlog.Must(os.ReadFile(goldenSnapshot))(t)
	v := testlog.Must(restore(data, "creation", records))(t)
	ref := fuzz.NewReference(initial, records...)
	testlog.WantNil(t, fuzz.Compare(v, ref))
	revert := patch.Record{Seq: v.Seq() + 1, Patch: patch.NewRevert("p1").WithID("p6")}
	v = testlog.Must(v.WithRecords(records).Apply(revert))(t)
	ref.Apply(revert)
	testlog.WantNil(t, fuzz.Compare(v, ref))
}
