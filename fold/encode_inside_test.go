package fold

import (
	"errors"
	"math"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// A view with a state key that is not UTF-8 cannot be encoded. Otherwise Restore could not read the form.
func TestAppendBinaryRefusesKey(t *testing.T) {
	value := testlog.Must(patch.NewValue(1))(t)
	c := &cut{seq: 1, keepsState: true, carriedDelta: delta{{Key: "k\xff", Value: value}}}
	var nodes *sequence
	v := View{seq: 1, patchSeq: 1, unloaded: &unloadedPatches{}, nodes: nodes.splice(nil, 0, 0, []node{{seq: 1, cut: c}})}
	if _, err := v.AppendBinary(nil); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("error %v, want one that matches %q", err, patch.ErrInvalid)
	}
}

// Restore takes memory proportional to the size of its input, even if the input contains false lengths. It
// never panics.
func FuzzRestore(f *testing.F) {
	var records []patch.Record
	for i := range 40 {
		records = append(records, patch.Record{Seq: uint64(i + 1), Event: someEvent})
	}
	for _, p := range []*patch.PatchEvent{
		patch.NewSplice(3, 5).WithState(patch.Keep), patch.NewSplice(20, 1, someEvent, someEvent), patch.NewSplice(99, 1), patch.NewSplice(10, 1),
	} {
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: p})
	}
	v := testlog.Must(New("creation", nil).Apply(records...))(f)
	data := testlog.Must(v.AppendBinary(nil))(f)
	f.Add(data)
	for _, seq := range []uint64{1 << 40, math.MaxUint64} {
		w := writer{form: []byte{formVersion}}
		w.text("creation")
		w.uint(seq)
		w.uint(3)
		w.text("")
		for _, u := range []uint64{0, seq / 2, 0, 1, pieceEvents, 1, seq, 0, 2, 0, 0} {
			w.uint(u)
		}
		f.Add(w.form)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		restored, err := Restore(New("creation", nil).WithRecords(records), data, uint64(len(records)))
		if err == nil {
			_, err = restored.Skipped()
		}
		if err != nil && !errors.Is(err, patch.ErrCorrupt) && !errors.Is(err, ErrOutdated) {
			t.Fatal(err)
		}
	})
}
