package patch_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

func ExampleNewEvent() {
	event, err := patch.NewEvent(patch.Fields{
		ID:           "e1",
		InvocationID: "inv1",
		Author:       "user",
		Timestamp:    time.Date(2025, 5, 29, 9, 11, 14, 0, time.UTC),
		Content:      patch.Text("user", "Is my flight on time?"),
		Actions:      patch.Actions{StateDelta: map[string]any{"turns": 1, "temp:typing": true}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(event)
	fmt.Printf("%#v\n", event.StateDelta()["turns"])

	// A value that would not come back unchanged is refused. The error names the field.
	_, err = patch.NewEvent(patch.Fields{Actions: patch.Actions{StateDelta: map[string]any{"wait": time.Second}}})
	fmt.Println(err)
	// Output:
	// {"id":"e1","invocationId":"inv1","author":"user","timestamp":"2025-05-29T09:11:14Z","content":{"parts":[{"text":"Is my flight on time?"}],"role":"user"},"actions":{"stateDelta":{"temp:typing":true,"turns":1}}}
	// 1
	// invalid: field "actions/stateDelta/wait": a value of Go type time.Duration cannot be restored from storage; use booleans, numbers, strings, slices and maps with string keys
}

func ExampleParseEvent() {
	event, err := patch.ParseEvent([]byte(`{
		"id": "e2", "author": "agent", "timestamp": "2025-05-29T09:11:14.25Z",
		"content": {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "status", "args": {}}}]},
		"turnComplete": true
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for part := range event.FunctionParts() {
		fmt.Println(part.Name, part.ID, part.Response)
	}
	fmt.Println(event) // unknown fields are kept

	_, err = patch.ParseEvent([]byte(`{"actions": {"stateDelta": {"price": 1, "price": 2}}}`))
	fmt.Println(err)
	// Output:
	// status c1 false
	// {"id":"e2","author":"agent","timestamp":"2025-05-29T09:11:14.25Z","content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"status","args":{}}}]},"turnComplete":true}
	// invalid: field "actions/stateDelta/price": duplicate key (byte 40)
}

func ExampleValue_Parts() {
	event, err := patch.ParseEvent([]byte(`{"author": "agent", "content": {"role": "model", "parts": [
		{"text": "They want the status.", "thought": true},
		{"text": "I look it up."},
		{"functionCall": {"id": "c1", "name": "status", "args": {"flight": "LX 1"}}},
		{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
	]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, part := range event.Content().Parts() {
		switch part.Kind {
		case patch.PartText:
			fmt.Println(i, "says", part.Text)
		case patch.PartCall:
			fmt.Println(i, "calls", part.Name, part.Args)
		case patch.PartData:
			fmt.Println(i, "sends", part.DataLen, "bytes of", part.MIMEType)
		default:
			fmt.Println(i, "is a", part.Kind)
		}
	}
	// Output:
	// 0 is a thought
	// 1 says I look it up.
	// 2 calls status {"flight":"LX 1"}
	// 3 sends 8 bytes of image/png
}

func ExampleValue_Decode() {
	content, err := patch.NewValue(map[string]any{"role": "model", "parts": []any{
		map[string]any{"functionCall": map[string]any{"name": "find", "args": map[string]any{"limit": 5, "price": 5.0}}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	// This type is defined by the program or by an SDK, like genai.Content.
	var message struct {
		Role  string
		Parts []struct {
			FunctionCall struct{ Args map[string]any }
		}
	}
	if err := content.Decode(&message); err != nil {
		fmt.Println(err)
		return
	}
	args := message.Parts[0].FunctionCall.Args
	fmt.Printf("%s: %#v %T\n", message.Role, args["limit"], args["price"]) // arguments have the Go types with which the event was made
	// Output:
	// model: 5 float64
}

func ExampleText() {
	fmt.Println(patch.Text("user", "Is my flight on time?"))
	// Output:
	// {"parts":[{"text":"Is my flight on time?"}],"role":"user"}
}

func ExampleNewSplice() {
	redacted, err := patch.ParseEvent([]byte(`{"id": "e9", "author": "user", "content": {"role": "user", "parts": [{"text": "My card is [removed]."}]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(patch.NewSplice(4, 1, redacted).WithID("p1").WithBase(0))

	err = patch.NewSplice(4, 0).Validate()
	fmt.Println(err)
	// Output:
	// {"id":"p1","patchType":"splice","start":4,"count":1,"replacement":[{"id":"e9","author":"user","content":{"role":"user","parts":[{"text":"My card is [removed]."}]}}],"base":0}
	// invalid patch: splice that neither removes nor adds: field "count": the count is 0 and there is no replacement, so the patch has no effect
}

func ExampleNewTruncateBefore() {
	p := patch.NewTruncateBefore("e7")
	fmt.Println(p, p.StatePolicy())
	fmt.Println(p.WithState(patch.Keep))
	// Output:
	// {"patchType":"truncate_before","eventId":"e7"} drop
	// {"patchType":"truncate_before","eventId":"e7","state":"keep"}
}

func ExampleNewRevert() {
	p := patch.NewRevert("p1").WithID("p2")
	fmt.Println(p, p.PatchID())
	fmt.Println(p.WithState(patch.Keep).Validate())
	// Output:
	// {"id":"p2","patchType":"revert","patchId":"p1"} p1
	// invalid patch: field of another patch type: field "state": a patch of type revert has no such field
}

func ExampleNewPin() {
	fmt.Println(patch.NewPin("e7"))
	fmt.Println(patch.NewUnpin("e7"))
	// Output:
	// {"patchType":"pin","eventId":"e7"}
	// {"patchType":"unpin","eventId":"e7"}
}

func ExamplePatchEvent() {
	p, err := patch.NewSplice(4, 2).WithID("p1").WithAuthor("reviewer").WithBase(7).
		WithTimestamp(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)).
		WithCustomMetadata(map[string]any{"ticket": 4711})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range []*patch.PatchEvent{p, patch.NewTruncateBefore("e7").WithGroup("cleanup")} {
		switch p.Type() {
		case patch.Splice:
			base, ok := p.Base()
			fmt.Println(p.Author(), "replaces", p.Count(), "events from", p.Start(), "by", len(p.NewEvents()), "and has seen", base, ok)
		case patch.TruncateBefore:
			fmt.Println("hides what stands before", p.EventID(), "in group", p.Group())
		}
	}
	fmt.Println(p)
	// Output:
	// reviewer replaces 2 events from 4 by 0 and has seen 7 true
	// hides what stands before e7 in group cleanup
	// {"id":"p1","author":"reviewer","timestamp":"2026-01-02T03:04:05Z","patchType":"splice","start":4,"count":2,"replacement":[],"base":7,"customMetadata":{"ticket":4711}}
}

func ExampleNewErase() {
	receipt := patch.NewErase(patch.Erasure{Seqs: []patch.Span{{From: 1, To: 1}}, Reason: "request 812"}).WithID("r1")
	event, err := patch.NewEvent(patch.Fields{ID: "e1", Author: "user", Content: patch.Text("user", "I am Ada.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	erasure, ok := receipt.Erasure()
	fmt.Println(receipt, ok)
	fmt.Println(erasure.Blank(patch.Record{Seq: 1, Event: event}, receipt.ID()).Event)
	// Output:
	// {"id":"r1","patchType":"erase","seqs":[[1,1]],"reason":"request 812"} true
	// {"id":"e1","author":"user","content":{"parts":[{"text":"[erased]"}],"role":"user"},"customMetadata":{"patchlog":{"erased":{"as":"e1","receipt":"r1"}}}}
}

func ExampleAppendRecord() {
	event, err := patch.NewEvent(patch.Fields{Author: "user", Actions: patch.Actions{StateDelta: map[string]any{"temp:x": 1, "n": 2}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := patch.Complete(patch.Record{Seq: 1, Event: event}, func() string { return "e1" }, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	form, err := patch.AppendRecord(nil, r)
	if err != nil {
		fmt.Println(err)
		return
	}
	back, err := patch.DecodeRecord(form)
	fmt.Println(back.Event, err)
	form[len(form)/2] ^= 1
	_, err = patch.DecodeRecord(form)
	fmt.Println(errors.Is(err, patch.ErrCorrupt))
	// Output:
	// {"id":"e1","author":"user","timestamp":"2026-01-02T03:04:05Z","actions":{"stateDelta":{"n":2}}} <nil>
	// true
}

func ExampleParseValue() {
	v, err := patch.ParseValue([]byte(`{"price": 10.50, "stock": 3}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %T %T\n", v, v.Members()["price"].Any(), v.Members()["stock"].Any())
	// Output:
	// {"price":10.50,"stock":3} float64 int64
}

func ExampleEstimateTextTokens() {
	fmt.Println(patch.EstimateTextTokens("Is my flight on time?"))
	// Output:
	// 6
}

func ExamplePatchEvent_WithGroup() {
	fmt.Println(patch.NewSplice(0, 2).WithGroup("window 3"))
	// Output:
	// {"patchType":"splice","start":0,"count":2,"replacement":[],"group":"window 3"}
}

func ExampleNewSummarise() {
	summary, err := patch.NewEvent(patch.Fields{
		ID:      "s1",
		Author:  "user",
		Content: patch.Text("user", "The flight is on time."),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := patch.NewSummarise(0, 12, summary)
	fmt.Println(p, p.StatePolicy(), p.Validate())
	// Output:
	// {"patchType":"summarise","start":0,"count":12,"summaryEvent":{"id":"s1","author":"user","content":{"parts":[{"text":"The flight is on time."}],"role":"user"}}} keep <nil>
}

func ExampleDecoder() {
	const file = `{"patchlog": 1, "initialState": {"tenant": "t1"}}
{"seq": 1, "id": "e1", "author": "user"}
{"seq": 2, "id": "p1", "patchType": "truncate_before", "eventId": "e1"}
{"seq": 3, "id": "e1"}
`
	d := patch.NewDecoder(strings.NewReader(file), "session.jsonl")
	state, _, err := d.InitialState()
	fmt.Println(state["tenant"], err)
	for {
		rec, err := d.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Println(err, errors.Is(err, patch.ErrInvalid))
			break
		}
		fmt.Println(d.Line, rec.Seq, rec.ID(), rec.Patch != nil)
	}
	// Output:
	// "t1" <nil>
	// 2 1 e1 false
	// 3 2 p1 true
	// session.jsonl:4: invalid: field "id": the id "e1" is already used on line 2; an id must be unique in a log true
}

func ExampleWriteRecord() {
	tenant, err := patch.NewValue("t1")
	if err != nil {
		fmt.Println(err)
		return
	}
	event, err := patch.NewEvent(patch.Fields{ID: "e1", Author: "user"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, err := range []error{
		patch.WriteHeader(os.Stdout, map[string]patch.Value{"tenant": tenant}),
		patch.WriteRecord(os.Stdout, patch.Record{Seq: 1, Event: event}),
		patch.WriteRecord(os.Stdout, patch.Record{Seq: 2, Patch: patch.NewTruncateBefore("e1").WithID("p1")}),
	} {
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// {"patchlog":1,"initialState":{"tenant":"t1"}}
	// {"seq":1,"id":"e1","author":"user"}
	// {"seq":2,"id":"p1","patchType":"truncate_before","eventId":"e1"}
}

func ExampleSame() {
	parse := func(text string) patch.Record {
		rec, err := patch.ParseRecord([]byte(text))
		if err != nil {
			fmt.Println(err)
		}
		return rec
	}
	logged := parse(`{"seq": 7, "id": "e1", "timestamp": "2025-05-29T09:11:14Z", "actions": {"stateDelta": {"a": 100.0, "b": [1]}}}`)
	retry := parse(`{"id": "e1", "actions": {"stateDelta": {"b": [1], "a": 1e2, "temp:x": true}}}`)
	other := parse(`{"id": "e1", "actions": {"stateDelta": {"b": [1], "a": 100}}}`)
	fmt.Println(patch.Same(logged, retry), patch.Same(logged, other))
	// Output:
	// true false
}

func ExampleParseRecord() {
	r, err := patch.ParseRecord([]byte(`{"seq":3,"id":"p1","patchType":"splice","start":0,"count":2}`))
	fmt.Println(r.Seq, r.Patch.Type(), r.Patch.Count(), err)

	_, err = patch.ParseRecord([]byte(`{"id":"e1","id":"e2"}`))
	fmt.Println(errors.Is(err, patch.ErrInvalid))
	// Output:
	// 3 splice 2 <nil>
	// true
}

func ExampleComplete() {
	newID := func() string { return "a new id" }
	r := patch.Complete(patch.Record{Patch: patch.NewPin("e7")}, newID, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	fmt.Println(r.Patch)
	// Output: {"id":"a new id","timestamp":"2026-01-02T03:04:05Z","patchType":"pin","eventId":"e7"}
}

func ExampleDecodeRecord() {
	form, err := patch.AppendRecord(nil, patch.Record{Seq: 3, Patch: patch.NewPin("e7").WithID("p1")})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := patch.DecodeRecord(form)
	fmt.Println(r.Patch, err)
	// Output: {"id":"p1","patchType":"pin","eventId":"e7"} <nil>
}
