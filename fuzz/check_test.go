package fuzz

import (
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

type wrongView struct {
	View
	len, seq, patchSeq int // numbers added to the correct values
	at                 func(i int) *patch.Event
	values             func(state map[string]patch.Value) // changes the correct state
	twice              bool                               // whether each key is yielded twice
	skips              func(skips []patch.Skip) []patch.Skip
}

func (v wrongView) Len() int         { return v.View.Len() + v.len }
func (v wrongView) Seq() uint64      { return v.View.Seq() + uint64(v.seq) }
func (v wrongView) PatchSeq() uint64 { return v.View.PatchSeq() + uint64(v.patchSeq) }

func (v wrongView) At(i int) *patch.Event {
	if v.at != nil {
		return v.at(i)
	}
	return v.View.At(i % v.View.Len())
}

func (v wrongView) Values() iter.Seq2[string, patch.Value] {
	return func(yield func(string, patch.Value) bool) {
		state := map[string]patch.Value{}
		for key, value := range v.View.Values() {
			state[key] = value
		}
		if v.values != nil {
			v.values(state)
		}
		for key, value := range state {
			if !yield(key, value) || v.twice && !yield(key, value) {
				return
			}
		}
	}
}

func (v wrongView) Skipped() ([]patch.Skip, error) {
	skips, err := v.View.Skipped()
	if v.skips != nil {
		skips = v.skips(skips)
	}
	return skips, err
}

// wrongPins is a view that reports the wrong pin state for the event at index at.
type wrongPins struct {
	modelView
	at int
}

func (v wrongPins) IsPinned(i int) bool { return v.modelView.IsPinned(i) != (i == v.at) }

func TestCompareReportsDifference(t *testing.T) {
	fromGo, err := patch.NewEvent(patch.Fields{ID: "e2", Actions: patch.Actions{StateDelta: map[string]any{"j": int32(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	fromJSON, err := patch.ParseEvent([]byte(fromGo.String()))
	if err != nil {
		t.Fatal(err)
	}
	recs := records(t, "e1 k=1\ncut 7+1\ne3\npin e1")
	recs[2].Event = fromGo
	ref := NewReference(nil, recs...)
	right := modelView{ref}
	other := record(t, "e1 k=2", 1).Event
	value := func(text string) patch.Value {
		v, err := patch.ParseValue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, test := range []struct {
		view View
		want string
	}{
		{right, ""},
		{wrongView{View: right}, ""},
		{wrongView{View: right, len: -1}, "the view has 1 visible events, want 2"},
		{wrongView{View: right, len: 1}, "the view has 3 visible events, want 2"},
		{wrongView{View: right, seq: 1}, "is at seq 5, want 4"},
		{wrongView{View: right, patchSeq: -4}, "newest patch of the view has seq 0, want 4"},
		{wrongView{View: right, at: func(int) *patch.Event { return right.At(1) }}, `visible event 0 is "e2", want "e1"`},
		{wrongView{View: right, at: func(int) *patch.Event { return nil }}, "visible event 0 is nil"},
		{wrongView{View: right, at: func(i int) *patch.Event { return []*patch.Event{other, fromGo}[i] }}, `"stateDelta":{"k":2}`},
		{wrongView{View: right, at: func(i int) *patch.Event { return []*patch.Event{right.At(0), fromJSON}[i] }}, "Go types"},
		{wrongView{View: right, twice: true}, "twice"},
		{wrongPins{right, 0}, `visible event 0, "e1", is pinned: false, want true`},
		{wrongPins{right, 1}, `visible event 1, "e2", is pinned: true, want false`},
		{wrongView{View: right, values: func(s map[string]patch.Value) { delete(s, "k") }}, `does not have key "k", want 1`},
		{wrongView{View: right, values: func(s map[string]patch.Value) { s["l"] = value("2") }}, `has key "l" with 2`},
		{wrongView{View: right, values: func(s map[string]patch.Value) { s["k"] = value("1.0") }}, `has 1.0 for key "k", want 1`},
		{wrongView{View: right, values: func(s map[string]patch.Value) { s["j"] = value("1") }}, "of type int64"},
		{wrongView{View: right, skips: func([]patch.Skip) []patch.Skip { return nil }}, "the skipped patches are [], want [{Seq:2 Reason:out of range}]"},
		{wrongView{View: right, skips: func([]patch.Skip) []patch.Skip { return []patch.Skip{{Seq: 2, Reason: NotFound}} }}, "are [{Seq:2 Reason:event not found}], want [{Seq:2 Reason:out of range}]"},
		{wrongView{View: right, skips: func(s []patch.Skip) []patch.Skip { return append(s, patch.Skip{Seq: 3, Reason: NotFound}) }}, "are [{Seq:2 Reason:out of range} {Seq:3 Reason:event not found}], want [{Seq:2 Reason:out of range}]"},
	} {
		got := ""
		if err := Compare(test.view, ref); err != nil {
			got = err.Error()
		}
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestCheckError(t *testing.T) {
	recs := records(t, "e1 k=1\ncut 0+1")
	cause := errors.New("no fold")
	err := Check(recs, nil, func(initial map[string]patch.Value, records []patch.Record) (View, error) {
		clear(records)
		return nil, cause
	})
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), `{"patchlog":1,"initialState":{}}`) ||
		!strings.Contains(err.Error(), `{"seq":2,"id":"p2","patchType":"splice"`) {
		t.Error(err)
	}
}
