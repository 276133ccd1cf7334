package receipt_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

func erasing(of patch.Erasure, id string, seq uint64) patch.Record {
	if id == "" {
		id = receipt.ID(of, 0)
	}
	return patch.Record{Seq: seq, Patch: patch.NewErase(of).WithID(id)}
}

// A receipt covers only records before it, and is open only in the session that it was logged in.
func TestReceipt(t *testing.T) {
	of := patch.Erasure{CallID: "call", CallSession: "c1", Session: "c1", Seqs: []patch.Span{{From: 2, To: 3}, {From: 5, To: 9}}, EventIndices: map[uint64][]int{3: {1}}}
	r := receipt.Decode(erasing(of, "", 7))
	testlog.Equal(t, "covered", receipt.CoveredSeqs(r), []uint64{2, 3, 5, 6})
	for ref, want := range map[fold.Ref]bool{{Seq: 2}: true, {Seq: 3}: false, {Seq: 3, Index: 1}: true, {Seq: 4}: false, {Seq: 7}: false} {
		testlog.Equal(t, "covers", r.Covers(ref), want)
	}
	testlog.Equal(t, "its own session", []bool{r.IsOpen("c1"), r.IsCall("c1"), r.KeepsSummaries()}, []bool{true, true, false})
	testlog.Equal(t, "a fork", []bool{r.IsOpen("c2"), r.IsCall("c2")}, []bool{false, false})
	testlog.Equal(t, "the same call", []bool{r.IsOfCall(of, "c1"), r.IsOfCall(patch.Erasure{CallID: "other", CallSession: "c1"}, "c1")}, []bool{true, false})
	if event := (patch.Record{Seq: 1, Event: testlog.Text("e", "i", "user", "hi")}); receipt.IsReceipt(event) || !receipt.IsReceipt(r.Record) {
		t.Error("what is a receipt")
	}
	for _, other := range []patch.Erasure{{CallID: "call", CallSession: "c1", Session: "c2"}, {CallID: "call", CallSession: "c1", Session: "c1", ForUser: true}} {
		if receipt.ID(other, 0) == receipt.ID(of, 0) || receipt.ID(of, 1) == receipt.ID(of, 0) {
			t.Error("two receipts have one id")
		}
	}
}

// Covered content becomes blank and names its receipt; blanks without a covering receipt are found.
func TestMarks(t *testing.T) {
	records := []patch.Record{{Seq: 1, Event: testlog.Text("e1", "i", "user", "secret")}, {Seq: 2, Event: testlog.Text("e2", "i", "user", "secret")}}
	r := receipt.Decode(erasing(patch.Erasure{CallID: "call", Session: "c", Seqs: []patch.Span{{From: 1, To: 1}}}, "r", 3))
	var marks receipt.Marks
	for i, was := range records {
		is := receipt.Blank(was, []receipt.Receipt{r})
		testlog.Equal(t, "is changed", is != was, i == 0)
		testlog.Equal(t, "twice is changed", receipt.Blank(is, []receipt.Receipt{r}) != is, false)
		marks.Add(is)
	}
	testlog.Equal(t, "missing", marks.MissingReceipts(), []string{"r"})
	testlog.Equal(t, "marks without a receipt", len(marks.WithoutReceipt()), 1)
	marks.Add(r.Record)
	testlog.Equal(t, "missing", marks.MissingReceipts(), nil)
	testlog.Equal(t, "marks without a receipt", len(marks.WithoutReceipt()), 0)

	initial := map[string]patch.Value{"a": testlog.Must(patch.NewValue("secret"))(t), "b": testlog.Must(patch.NewValue(1))(t)}
	r.Erasure.Initial = []string{"a", "none"}
	testlog.Equal(t, "changed", receipt.NullInitial(initial, []receipt.Receipt{r}), true)
	testlog.Equal(t, "null", []bool{receipt.IsNull(initial["a"]), receipt.IsNull(initial["b"])}, []bool{true, false})
	testlog.Equal(t, "changed twice", receipt.NullInitial(initial, []receipt.Receipt{r}), false)
}
