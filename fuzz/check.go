package fuzz

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// View is the result of a fold under test. The type fold.View implements it.
type View interface {
	Len() int                               // length of the visible log
	At(i int) *patch.Event                  // visible event at index i
	Seq() uint64                            // seq of the newest record, or 0
	PatchSeq() uint64                       // seq of the newest patch, including skipped patches, or 0
	Values() iter.Seq2[string, patch.Value] // session's state without shared keys, each key once, in any order
	IsPinned(i int) bool                    // whether the visible event at index i is pinned
	Skipped() ([]patch.Skip, error)         // seqs and reasons of the skipped patches, in log order
}

// Check folds the records with the argument fold and with a [Reference], and compares the results. If the results
// differ, the error describes the first difference. If fold fails, the error wraps fold's error. The text of the error
// includes the log in the text form. Check passes copies of the map and of the slice to fold.
func Check(records []patch.Record, initial map[string]patch.Value,
	fold func(initial map[string]patch.Value, records []patch.Record) (View, error)) error {
	if fold == nil {
		return errors.New("the fold function is nil")
	}
	ref := NewReference(initial, records...)
	view, err := fold(maps.Clone(initial), slices.Clone(records))
	if err == nil {
		err = Compare(view, ref)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, Text(records, initial))
	}
	return nil
}

// Text returns a log in the text form, for error messages.
func Text(records []patch.Record, initial map[string]patch.Value) string {
	var b strings.Builder
	if err := patch.WriteHeader(&b, initial); err != nil {
		fmt.Fprintf(&b, "(no header: %v)\n", err)
	}
	for i, rec := range records {
		if err := patch.WriteRecord(&b, rec); err != nil {
			fmt.Fprintf(&b, "(no record at %d: %v)\n", i, err)
		}
	}
	return b.String()
}

// Compare compares a view with the model of the same log. It returns the first difference, or nil. Events and values
// must have the same JSON text and the same Go types.
func Compare(view View, ref *Reference) error {
	switch {
	case view == nil:
		return errors.New("the view to compare is nil")
	case ref == nil:
		return errors.New("the reference to compare with is nil")
	}
	if got, want := view.Seq(), ref.Seq(); got != want {
		return fmt.Errorf("the view is at seq %d, want %d", got, want)
	}
	if got, want := view.PatchSeq(), ref.PatchSeq(); got != want {
		return fmt.Errorf("the newest patch of the view has seq %d, want %d", got, want)
	}
	skipped, err := view.Skipped()
	if err != nil {
		return fmt.Errorf("the skipped patches: %w", err)
	}
	if want := ref.Skipped(); !slices.Equal(skipped, want) {
		return fmt.Errorf("the skipped patches are %+v, want %+v", skipped, want)
	}
	return cmp.Or(compareEvents(view, ref), compareState(view, ref))
}

func compareEvents(view View, ref *Reference) error {
	want, pinned := ref.Visible(), ref.Pinned()
	for i := range min(view.Len(), len(want)) {
		got := view.At(i)
		isSame := got == want[i]
		switch {
		case got == nil:
			return fmt.Errorf("visible event %d is nil, want %v", i, want[i])
		case got.ID() != want[i].ID():
			return fmt.Errorf("visible event %d is %q, want %q (%s)", i, got.ID(), want[i].ID(), sequences(view, want))
		case !isSame && got.String() != want[i].String():
			return fmt.Errorf("visible event %d is %v, want %v", i, got, want[i])
		case !isSame && !sameForm(got, want[i]):
			return fmt.Errorf("visible event %d, %v, does not have the Go types that it was made from", i, got)
		case view.IsPinned(i) != pinned[i]:
			return fmt.Errorf("visible event %d, %q, is pinned: %v, want %v", i, got.ID(), !pinned[i], pinned[i])
		}
	}
	if view.Len() != len(want) {
		return fmt.Errorf("the view has %d visible events, want %d (%s)", view.Len(), len(want), sequences(view, want))
	}
	return nil
}

// sameForm reports whether two events have the same stored form. The stored form contains the Go types.
func sameForm(a, b *patch.Event) bool {
	formA, errA := patch.AppendRecord(nil, patch.Record{Event: a})
	formB, errB := patch.AppendRecord(nil, patch.Record{Event: b})
	return errA == nil && errB == nil && bytes.Equal(formA, formB)
}

func sequences(view View, want []*patch.Event) string {
	var got []*patch.Event
	for i := range view.Len() {
		got = append(got, view.At(i))
	}
	return fmt.Sprintf("visible are %q, want %q", idsOf(got), idsOf(want))
}

func idsOf(events []*patch.Event) (ids []string) {
	for _, e := range events {
		if e == nil {
			e = &patch.Event{}
		}
		ids = append(ids, e.ID())
	}
	return ids
}

func compareState(view View, ref *Reference) error {
	got := map[string]patch.Value{}
	for key, value := range view.Values() {
		if _, ok := got[key]; ok {
			return fmt.Errorf("the state has key %q twice", key)
		}
		got[key] = value
	}
	want := ref.State()
	all := maps.Clone(want)
	maps.Copy(all, got)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value, has := got[key]
		_, wanted := want[key]
		switch {
		case !has:
			return fmt.Errorf("the state does not have key %q, want %v", key, want[key])
		case !wanted:
			return fmt.Errorf("the state has key %q with %v, want no such key", key, value)
		case value.String() != want[key].String():
			return fmt.Errorf("the state has %v for key %q, want %v", value, key, want[key])
		case !reflect.DeepEqual(value.Any(), want[key].Any()):
			return fmt.Errorf("the state has %v of type %T for key %q, want type %T", value, value.Any(), key, want[key].Any())
		}
	}
	return nil
}
