package adkrecord_test

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// lines is a log of two events and the compaction record that ADK made of them.
var lines = []string{
	`{"id":"a","author":"user","timestamp":"1970-01-01T00:00:01Z","content":{"role":"user","parts":[{"text":"hello"}]}}`,
	`{"id":"b","author":"clerk","timestamp":"1970-01-01T00:00:02Z","content":{"role":"model","parts":[{"text":"hello, who is there?"}]}}`,
	`{"id":"c","author":"user","timestamp":"1970-01-01T00:00:03Z","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2,
		"compactedContent":{"role":"model","parts":[{"text":"They greeted each other."}]}}}}`,
	`{"id":"d","author":"user","timestamp":"1970-01-01T00:00:04Z","content":{"role":"user","parts":[{"text":"it is Ann"}]}}`,
}

// adkEvents parses lines.
func adkEvents() (events []*patch.Event) {
	for _, line := range lines {
		e, err := patch.ParseEvent([]byte(line))
		if err != nil {
			panic(err)
		}
		events = append(events, e)
	}
	return events
}

func adkView() fold.View {
	view := fold.New("", nil)
	for _, e := range adkEvents() {
		var err error
		if view, err = view.Apply(patch.Record{Seq: view.Seq() + 1, Event: e}); err != nil {
			panic(err)
		}
	}
	return view
}

func ExampleAdopt() {
	view := adkView()
	plan := adkrecord.Adopt(view, adkrecord.Options{})
	fmt.Println("adopted", plan.Adopted, "left", plan.NotAdopted)
	for _, p := range plan.Patches { // a program passes the patches to store.Store.ApplyPatch
		var err error
		if view, err = view.Apply(patch.Record{Seq: view.Seq() + 1, Patch: p}); err != nil {
			panic(err)
		}
	}
	fmt.Println(view.Len(), "visible, a summary first:", view.Entry(0).Summary)
	// Output:
	// adopted [c] left []
	// 2 visible, a summary first: true
}

// ExampleOptions adopts a single record. The ids that it sets make the output reproducible.
func ExampleOptions() {
	view := adkView()
	n := 0
	newID := func() string { n++; return fmt.Sprint("id-", n) }
	plan := adkrecord.Adopt(view, adkrecord.Options{Records: []string{"c"}, NewID: newID})
	for _, p := range plan.Patches {
		fmt.Println(p.Type(), p.ID(), p.Group())
	}
	fmt.Println("adopted", plan.Adopted, "left", plan.NotAdopted)
	fmt.Println("of what is no record", adkrecord.Adopt(view, adkrecord.Options{Records: []string{"d"}, NewID: newID}))
	// Output:
	// summarise id-3 c
	// splice id-4 c
	// adopted [c] left []
	// of what is no record {[] [] []}
}

func ExampleFilterEventsForLLM() {
	for _, e := range adkrecord.FilterEventsForLLM(adkEvents()) {
		for _, p := range e.Content().Parts() {
			fmt.Printf("%s: %s\n", e.Author(), p.Text)
		}
	}
	// Output:
	// user: They greeted each other.
	// user: it is Ann
}
