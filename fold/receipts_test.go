package fold_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// A receipt only changes which patch is the newest. It cannot be reverted.
func TestReceipt(t *testing.T) {
	receipt := patch.NewErase(patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}}, Reason: "asked"}).WithID("r")
	event := func(seq uint64) patch.Record {
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", seq), Content: patch.Text("user", "hello")}))(t)
		return patch.Record{Seq: seq, Event: e}
	}
	v, err := fold.New("", nil).WithEdition(7).Apply(event(1), event(2), patch.Record{Seq: 3, Patch: receipt})
	if err != nil || v.Len() != 2 || v.Seq() != 3 || v.PatchSeq() != 3 || v.SkippedCount() != 0 || v.Edition() != 7 {
		t.Fatalf("%d events at record %d, newest patch %d, %d skipped, edition %d, %v", v.Len(), v.Seq(), v.PatchSeq(), v.SkippedCount(), v.Edition(), err)
	}
	testlog.ErrorIs(t, v.Check(patch.NewSplice(0, 1).WithBase(0), fold.CheckOptions{}), fold.ErrConflict, "a patch that was made before the erasure")
	if err := v.Check(receipt.WithID("other"), fold.CheckOptions{}); err != nil {
		t.Errorf("another receipt: %v", err)
	}
	_, standing := v.RevertTargets("r")
	for _, err := range []error{v.Check(patch.NewRevert("r"), fold.CheckOptions{}), standing} {
		if !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), `"r"`) || !strings.Contains(err.Error(), "receipts of erasures") {
			t.Errorf("taking the receipt back: %v", err)
		}
	}
	testlog.ErrorIs(t, v.Check(patch.NewRevert("e1"), fold.CheckOptions{}), patch.ErrInvalid, "taking an event back")
	k := &keeper{t: t, log: []patch.Record{event(1), event(2), {Seq: 3, Patch: receipt}}}
	if _, err := k.restore(v).RevertTargets("r"); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), "receipt") {
		t.Errorf("taking the receipt back, on a restored view: %v", err)
	}
	after, err := v.Apply(patch.Record{Seq: 4, Patch: patch.NewRevert("r")})
	if skipped, _ := after.Skipped(); err != nil || len(skipped) != 1 || skipped[0] != (patch.Skip{Seq: 4, Reason: patch.PatchNotFound}) {
		t.Errorf("a logged revert of it: %v, %v", skipped, err)
	}
	if patches, err := v.Rewind(2); err != nil || len(patches) != 1 || patches[0].Type() != patch.Splice {
		t.Errorf("a rewind behind the first event: %v, %v", patches, err)
	}
}

// A log with erased events folds as before, except for erased content and for values set to null.
func TestPropertyErasedFoldsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 40}).Draw(t, "records")
		receipt := fuzz.Receipt("the receipt").Draw(t, "receipt")
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: receipt})
		gone := fuzz.EraseLog(records)
		before := testlog.Must(fold.New("", initialState).Apply(records...))(t)
		after := testlog.Must(fold.New("", initialState).Apply(gone...))(t)
		testlog.NoError(t, fuzz.Check(gone, initialState, func(map[string]patch.Value, []patch.Record) (fuzz.View, error) { return after, nil }))
		nulls := slices.ContainsFunc(records, func(r patch.Record) bool {
			if r.Patch == nil {
				return false
			}
			e, ok := r.Patch.Erasure()
			return ok && e.Values == patch.NullValues
		})
		sees := func(v fold.View) (s []string) {
			for i, e := range v.Entries() {
				s = append(s, fmt.Sprint(i, e.Event.ID(), e.Seq, e.Summary, e.Pinned))
			}
			for _, c := range v.Calls() {
				s = append(s, fmt.Sprint(c.ID, c.Name, c.Index, c.Responses))
			}
			for key, value := range v.Values() {
				if s = append(s, key); !nulls {
					s = append(s, value.String())
				}
			}
			history := testlog.Must(v.WithRecords(records).History())(t) // blanks keep their ids
			for _, e := range history {
				s = append(s, e.Event.ID())
			}
			skipped, _ := v.Skipped()
			for _, skip := range skipped {
				s = append(s, fmt.Sprint(skip.Seq, skip.Reason == patch.UnknownType))
			}
			return s
		}
		if was, is := sees(before), sees(after); !slices.Equal(was, is) {
			t.Fatalf("it shows %q\nand with all there %q\n%s", is, was, fuzz.Text(records, initialState))
		}
	})
}
