package fuzz_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
)

// This example folds a log with the model, which then refuses a patch.
func ExampleReference() {
	r := fuzz.NewReference(nil)
	for i, line := range []string{
		`{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"Any room on Friday?"}]}}`,
		`{"id":"e2","actions":{"stateDelta":{"day":"Friday"}},"content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"look"}}]}}`,
		`{"id":"e3","content":{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"look"}}]}}`,
		`{"id":"e4","content":{"role":"model","parts":[{"text":"Two are left."}]}}`,
		`{"id":"p5","patchType":"splice","start":1,"count":2,"state":"keep"}`,
	} {
		rec, err := patch.ParseRecord([]byte(line))
		if err != nil {
			panic(err)
		}
		rec.Seq = uint64(i + 1)
		if rec.Patch != nil {
			fmt.Println(r.Check(fuzz.CheckOptions{}, patch.NewSplice(1, 1)))
			fmt.Println(r.Suggest(patch.NewSplice(1, 1), fuzz.CheckOptions{}))
		}
		r.Apply(rec)
	}
	for _, e := range r.Visible() {
		fmt.Println(e.ID())
	}
	fmt.Println(r.State())
	// Output:
	// orphaned call: response "c1" of look() in event "e3": the response would have no call
	// 1 2 true
	// e1
	// e4
	// map[day:"Friday"]
}

// forgetful is a fold that ignores patches. Check detects this fault.
type forgetful struct {
	events []*patch.Event
	seq    uint64
}

func (f *forgetful) Len() int              { return len(f.events) }
func (f *forgetful) At(i int) *patch.Event { return f.events[i] }
func (f *forgetful) Seq() uint64           { return f.seq }
func (f *forgetful) PatchSeq() uint64      { return 0 }
func (f *forgetful) IsPinned(int) bool     { return false }
func (f *forgetful) Values() iter.Seq2[string, patch.Value] {
	return maps.All(map[string]patch.Value{})
}
func (f *forgetful) Skipped() ([]patch.Skip, error) { return nil, nil }

func foldForgetfully(_ map[string]patch.Value, records []patch.Record) (fuzz.View, error) {
	f := &forgetful{}
	for _, rec := range records {
		f.seq = rec.Seq
		if rec.Event != nil {
			f.events = append(f.events, rec.Event)
		}
	}
	return f, nil
}

func ExampleCheck() {
	event, err := patch.ParseEvent([]byte(`{"id":"e1"}`))
	if err != nil {
		panic(err)
	}
	records := []patch.Record{
		{Seq: 1, Event: event},
		{Seq: 2, Patch: patch.NewTruncateBefore("e1").WithID("p2")},
	}
	fmt.Println(fuzz.Check(slices.Clone(records[:1]), nil, foldForgetfully))
	fmt.Println(fuzz.Check(records, nil, foldForgetfully))
	// Output:
	// <nil>
	// the newest patch of the view has seq 0, want 2
	// {"patchlog":1,"initialState":{}}
	// {"seq":1,"id":"e1"}
	// {"seq":2,"id":"p2","patchType":"truncate_before","eventId":"e1"}
}

// In a real test, myFold is the fold under test.
func ExampleRecords() {
	myFold := foldForgetfully
	_ = func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			records := fuzz.Records(fuzz.Options{}).Draw(t, "records")
			initial := fuzz.InitialState().Draw(t, "initial state")
			if err := fuzz.Check(records, initial, myFold); err != nil {
				t.Fatal(err)
			}
		})
	}
}
