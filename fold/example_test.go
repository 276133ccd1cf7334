package fold_test

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// exampleLog returns a session of four events: a question, a call, its response, and an answer. Each event sets
// the state key "step".
func exampleLog() (log []patch.Record) {
	for i, e := range events("question step=1", "call call:c1 step=2", "response resp:c1 step=3", "answer step=4") {
		log = append(log, patch.Record{Seq: uint64(i + 1), Event: e})
	}
	return log
}

func exampleView() fold.View {
	v, _ := fold.View{}.Apply(exampleLog()...)
	return v
}

func ExampleNew() {
	tenant, _ := patch.NewValue("t1")
	v := fold.New("", map[string]patch.Value{"tenant": tenant})
	fmt.Println(v.Len(), v.State())
	// Output: 0 map[tenant:t1]
}

func ExampleView_Apply_many() {
	v, err := fold.View{}.Apply([]patch.Record{
		{Seq: 1, Event: event("e1")},
		{Seq: 2, Event: event("e2")},
		{Seq: 3, Patch: patch.NewTruncateBefore("e2")},
	}...)

	fmt.Println(v.Len(), v.At(0).ID(), v.PatchSeq(), err)
	// Output: 1 e2 3 <nil>
}

func ExampleView_Apply() {
	before := exampleView()
	after, err := before.Apply(patch.Record{Seq: 5, Patch: patch.NewSplice(1, 2).WithState(patch.Keep)})
	fmt.Println(before.Len(), after.Len(), after.State(), err)
	// Output: 4 2 map[step:4] <nil>
}

func ExampleView_Check() {
	err := exampleView().Check(patch.NewSplice(1, 1), fold.CheckOptions{})
	fmt.Println(err)
	// Output: orphaned function call: response "c1" of function "f" in visible event 2 (id "response") would answer no call; the smallest accepted span around it is start 1, count 2
}

func ExampleView_Preview() {
	v := exampleView()
	after, err := v.Preview([]*patch.PatchEvent{patch.NewSplice(1, 2)}, fold.CheckOptions{})
	for _, e := range v.Diff(after).Removed {
		fmt.Println("goes:", e.Event.ID())
	}
	fmt.Println(after.Len(), err)
	// Output:
	// goes: call
	// goes: response
	// 2 <nil>
}

func ExampleView_Events() {
	for i, e := range exampleView().Events() {
		fmt.Println(i, e.ID())
	}
	// Output:
	// 0 question
	// 1 call
	// 2 response
	// 3 answer
}

func ExampleView_Find() {
	fmt.Println(exampleView().Find("answer"))
	// Output: 3 true
}

func ExampleView_Skipped() {
	v, _ := exampleView().Apply(patch.Record{Seq: 5, Patch: patch.NewSplice(7, 1)})
	fmt.Println(v.Skipped())
	// Output: [{5 out of range}] <nil>
}

func ExampleView_Calls() {
	for _, c := range exampleView().Calls() {
		fmt.Println("call", c.ID, "in event", c.Index, "is answered by", c.Responses)
	}
	// Output: call c1 in event 1 is answered by [2]
}

func ExampleView_Entries() {
	v, _ := exampleView().Apply(patch.Record{Seq: 5, Patch: patch.NewSummarise(0, 3, event("s", "text:told"))})
	for i, e := range v.Entries() {
		fmt.Println(i, e.Event.ID(), "by record", e.Seq, "summary:", e.Summary)
	}
	// Output:
	// 0 s by record 5 summary: true
	// 1 answer by record 4 summary: false
}

func ExampleView_Entry() {
	v, _ := exampleView().Apply(patch.Record{Seq: 5, Patch: patch.NewSummarise(0, 3, event("s", "text:told"))})
	fmt.Println(v.Entry(0).Event.ID(), v.Entry(0).Seq, v.Entry(0).Summary)
	// Output: s 5 true
}

func ExampleMissingRecordsError() {
	log := []patch.Record{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Patch: patch.NewSplice(0, 1).WithID("p")}}
	v, _ := fold.New("", nil).Apply(log...) // the view no longer contains e1

	revert := patch.Record{Seq: 4, Patch: patch.NewRevert("p")}
	_, err := v.Apply(revert)
	fmt.Println(err)
	var need *fold.MissingRecordsError
	if errors.As(err, &need) {
		v, err = v.WithRecords(log[need.Seqs[0]-1:]).Apply(revert)
	}
	fmt.Println(v.Len(), v.At(0).ID(), err)
	// Output:
	// the view needs 1 records, from record 1 on; supply them with WithRecords
	// 2 e1 <nil>
}

func ExampleView_Preview_group() {
	v := exampleView()
	call, response := patch.NewSplice(1, 1).WithGroup("g"), patch.NewSplice(1, 1).WithGroup("g")
	fmt.Println(v.Check(call, fold.CheckOptions{}) == nil) // the first patch alone would separate a call from its response
	after, err := v.Preview([]*patch.PatchEvent{call, response}, fold.CheckOptions{})
	fmt.Println(after.Len(), err)
	// Output:
	// false
	// 2 <nil>
}

func ExampleView_IsPinned() {
	v, _ := exampleView().Apply(patch.Record{Seq: 5, Patch: patch.NewPin("question").WithID("p")})
	fmt.Println(v.IsPinned(0), v.IsPinned(1))
	fmt.Println(v.Check(patch.NewSplice(0, 1), fold.CheckOptions{}))
	fmt.Println(v.Check(patch.NewSplice(0, 1), fold.CheckOptions{AllowPinned: true, AllowOrphans: true}))
	// Output:
	// true false
	// pinned: the patch would hide visible event 0 (id "question"); unpin it, keep it visible, or allow pinned events to be hidden
	// <nil>
}

func ExampleView_RevertTargets() {
	log := exampleLog()
	for i, p := range []*patch.PatchEvent{
		patch.NewSplice(3, 1).WithGroup("g"), patch.NewSplice(0, 1).WithGroup("g"), patch.NewRevert("p0"),
	} {
		log = append(log, patch.Record{Seq: uint64(len(log) + 1), Patch: p.WithID(fmt.Sprint("p", i))})
	}
	v, _ := fold.View{}.Apply(log...)
	fmt.Println(v.RevertTargets("p1")) // p0 is already reverted
	// Output: [p1] <nil>
}

func ExampleView_Diff() {
	before := exampleView()
	after, _ := before.Apply(patch.Record{Seq: 5, Patch: patch.NewSplice(1, 2)})
	after, _ = after.Apply(patch.Record{Seq: 6, Event: event("later")})
	d := before.Diff(after)
	for _, e := range d.Removed {
		fmt.Println("-", e.Index, e.Event.ID())
	}
	for _, e := range d.Added {
		fmt.Println("+", e.Index, e.Event.ID())
	}
	fmt.Println("from", d.FirstChanged, "on;", len(d.StateChanged), "state keys")
	// Output:
	// - 1 call
	// - 2 response
	// + 2 later
	// from 1 on; 0 state keys
}

func ExampleView_Rewind() {
	log := append(exampleLog(), patch.Record{Seq: 5, Patch: patch.NewSummarise(0, 4, event("summary", "text:all")).WithID("p1")})
	v, _ := fold.View{}.Apply(log...)
	patches, err := v.Rewind(4) // to the state before the answer
	fmt.Println(err)
	for _, p := range patches {
		fmt.Println(p)
		v, _ = v.WithRecords(log).Apply(patch.Record{Seq: v.Seq() + 1, Patch: p})
	}
	fmt.Println(v.Len(), v.State())
	// Output:
	// <nil>
	// {"patchType":"revert","patchId":"p1"}
	// {"patchType":"splice","start":3,"count":1,"replacement":[],"state":"drop"}
	// 3 map[step:3]
}

func ExampleView_Values() {
	v := fold.New("created-1", nil)
	v, _ = v.Apply(patch.Record{Seq: 1, Event: event("e1", "b=2", "a=1")})
	for key, value := range v.Values() {
		fmt.Println(key, value)
	}
	fmt.Println(v.Creation())
	// Output:
	// a "1"
	// b "2"
	// created-1
}

// A revert needs the records of the events that it restores. The caller supplies these records, wherever they are
// stored.
func ExampleView_WithRecords() {
	log := map[uint64]patch.Record{1: {Seq: 1, Event: event("e1")}, 2: {Seq: 2, Event: event("e2")}, 3: {Seq: 3, Patch: patch.NewSplice(0, 2).WithID("p")}}
	v := fold.New("", nil)
	for seq := range uint64(3) {
		v, _ = v.Apply(log[seq+1])
	}
	revert := patch.Record{Seq: 4, Patch: patch.NewRevert("p")}
	after, err := v.Apply(revert)
	for need := (*fold.MissingRecordsError)(nil); errors.As(err, &need); {
		var records []patch.Record
		for _, seq := range need.Seqs {
			records = append(records, log[seq])
		}
		after, err = v.WithRecords(records).Apply(revert)
	}
	fmt.Println(v.Len(), after.Len(), err)
	// Output: 0 2 <nil>
}

// A restored view can revert earlier patches if the caller supplies the records of the restored events.
func ExampleRestore() {
	log := []patch.Record{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Patch: patch.NewSplice(0, 1).WithID("p")}}
	v, _ := fold.New("", nil).Apply(log...)
	form, _ := v.AppendBinary(nil)
	restored, err := fold.Restore(fold.New("", nil).WithRecords(log[1:2]), form, 3) // the records of the visible events
	fmt.Println(restored.Len(), err)
	after, err := restored.WithRecords(log[:1]).Apply(patch.Record{Seq: 4, Patch: patch.NewRevert("p")})
	fmt.Println(after.Len(), err)
	// Output:
	// 1 <nil>
	// 2 <nil>
}

// A summary hides events from the model, but a history shows them.
func ExampleView_History() {
	summary, err := patch.ParseEvent([]byte(`{"id":"s","content":{"parts":[{"text":"in short"}]}}`))
	if err != nil {
		panic(err)
	}
	log := []patch.Record{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Event: event("e3")},
		{Seq: 4, Patch: patch.NewSummarise(0, 2, summary)}, {Seq: 5, Patch: patch.NewSplice(1, 1)}}
	v, _ := fold.New("", nil).Apply(log...)
	history, err := v.WithRecords(log).History()
	fmt.Println(v.Len(), "for a model, for people", len(history), err)
	for _, e := range history {
		fmt.Println(e.Event.ID(), "in the place of", v.At(e.Index).ID())
	}
	// Output:
	// 1 for a model, for people 2 <nil>
	// e1 in the place of s
	// e2 in the place of s
}

// To compute one page of a history, a view needs only the records of the page's events.
func ExampleView_HistoryPage() {
	log := []patch.Record{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Event: event("e3")}}
	v, _ := fold.New("", nil).Apply(log...)
	page, err := v.WithRecords(log).HistoryPage("e3", 3, 1)
	for _, e := range page {
		fmt.Println(e.Event.ID(), err)
	}
	// Output:
	// e2 <nil>
}

// Places names the patch that hides an event.
func ExampleView_Places() {
	log := []patch.Record{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Event: event("e3")},
		{Seq: 4, Patch: patch.NewSplice(0, 2).WithID("cut")}}
	v, _ := fold.New("", nil).Apply(log...)
	places, err := v.Places()
	for seq := range uint64(3) {
		place, _ := places.Of(seq+1, 0)
		fmt.Println(seq+1, place.Index >= 0, place.HiddenBy, err)
	}
	// Output:
	// 1 false cut <nil>
	// 2 false cut <nil>
	// 3 true  <nil>
}

func ExampleView_Cuts() {
	v := exampleView()
	summary, _ := patch.NewEvent(patch.Fields{ID: "s", Content: patch.Text("model", "what was said")})
	v, _ = v.Apply(patch.Record{Seq: 5, Patch: patch.NewSummarise(0, 3, summary).WithID("p")})
	cuts, err := v.Cuts()
	if err != nil {
		fmt.Println(err) // the view was restored from malformed bytes
	}
	for c := range cuts {
		for ref := range c.Removed {
			fmt.Println("patch", c.Seq, "removed the event of record", ref.Seq)
		}
		fmt.Println("and added", c.Added)
	}
	// Output:
	// patch 5 removed the event of record 1
	// patch 5 removed the event of record 2
	// patch 5 removed the event of record 3
	// and added 1
}

func ExampleView_HiddenSince() {
	v := exampleView()
	v, _ = v.Apply(patch.Record{Seq: 5, Patch: patch.NewSplice(0, 1).WithID("p")})
	since, err := v.HiddenSince()
	fmt.Println(since, err)
	// Output: map[{1 0}:5] <nil>
}

func ExampleView_WithEdition() {
	before := exampleView()
	again := exampleView().WithEdition(1) // the same view after an erasure
	fmt.Println(before.Edition(), again.Edition())
	// Output: 0 1
}

// A program with its own log drafts a call before it logs the call. The call may be a retry, and it may be
// refused.
func ExampleDraft() {
	view := fold.New("creation", nil)
	log := fold.Logged{Records: map[string]patch.Record{}}
	question := patch.Record{Event: exampleLog()[0].Event}

	draft := fold.Draft{View: view}
	for range 2 { // the second iteration is a retry
		call := []patch.Record{question}
		if err := cmp.Or(fold.CheckUnique(call), fold.CheckNotErased(question)); err != nil {
			fmt.Println(err)
		}
		records, missing, err := fold.Match(log, call, call)
		if err != nil {
			fmt.Println(err)
		}
		for _, i := range missing {
			if err := draft.Append(&records[i]); err != nil {
				fmt.Println(err)
			}
			log.Records[question.ID()] = records[i]
		}
		fmt.Println(len(missing), "missing; the log has", draft.View.Seq())
	}

	newID := func() string { return "group" }
	cut := fold.Grouped(draft.View, "me", newID, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("cut")})
	if err := draft.AddPatches(log, fold.PatchOptions{On: draft.View}, cut, []int{0}); err != nil {
		fmt.Println(err)
	}
	pin := []patch.Record{{Patch: patch.NewPin(question.ID()).WithID("pin")}}
	fmt.Println(draft.AddGroup(log, fold.CheckOptions{}, pin))
	fmt.Println(draft.View.Len(), "visible of", len(draft.Added))
	// Output:
	// 1 missing; the log has 1
	// 0 missing; the log has 1
	// event not found: no visible event has the id "question"
	// 0 visible of 2
}
