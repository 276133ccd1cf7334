// Package fuzzing shows how a program compares its own fold with patchlog's reference model on generated
// logs.
package fuzzing

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
)

// foldOneByOne applies records to a view one at a time, as a program with a cached view would. WithRecords
// gives the view access to the log, because a revert reads hidden records.
func foldOneByOne(initial map[string]patch.Value, records []patch.Record) (fuzz.View, error) {
	v := fold.New("", initial)
	for _, r := range records {
		var err error
		if v, err = v.WithRecords(records).Apply(r); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func TestFoldEqualsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{}).Draw(t, "records")
		initial := fuzz.InitialState().Draw(t, "initial state")
		if err := fuzz.Check(records, initial, foldOneByOne); err != nil {
			t.Fatal(err)
		}
	})
}

// fuzz.Check detects a fold that keeps state that it should drop.
func TestCheckFindsFlawedFold(t *testing.T) {
	found := false
	for seed := range 200 {
		records := fuzz.Records(fuzz.Options{}).Example(seed)
		found = found || fuzz.Check(records, nil, func(initial map[string]patch.Value, records []patch.Record) (fuzz.View, error) {
			for i, r := range records {
				if p := r.Patch; p != nil && p.Type() == patch.Splice && p.Validate() == nil {
					records[i].Patch = p.WithState(patch.Keep)
				}
			}
			return fold.New("", maps.Clone(initial)).Apply(records...)
		}) != nil
	}
	if !found {
		t.Error("200 logs do not show that the fold keeps state")
	}
}

// The generator yields valid events and patches for a session. The reference model rejects invalid patches.
func TestReferenceRejectsPatch(t *testing.T) {
	event := fuzz.Event("e1", nil).Example(1)
	ref := fuzz.NewReference(nil)
	ref.Apply(patch.Record{Seq: 1, Event: event})
	if err := ref.Check(fuzz.CheckOptions{}, patch.NewTruncateBefore("unknown")); err == nil {
		t.Error("a patch that names no event passes")
	}
}
