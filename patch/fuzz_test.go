package patch_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// readEverything calls every accessor that decodes data. For a forged record, the results are unspecified.
func readEverything(rec patch.Record) {
	sound := rec.Verify(nil) == nil
	for _, values := range []patch.ValuePolicy{patch.KeepValues, patch.NullValues} {
		blank := patch.Erasure{Seqs: []patch.Span{{To: math.MaxUint64}}, Values: values}.Blank(rec, "receipt")
		if err := blank.Verify(nil); err != nil && sound {
			panic("a blank of a sound record: " + err.Error())
		}
	}
	if err := patch.Complete(rec, nil, time.Time{}).Verify(nil); err != nil && sound {
		panic("a sound record, completed: " + err.Error())
	}
	events := []*patch.Event{rec.Event}
	if p := rec.Patch; p != nil {
		events = p.NewEvents()
		p.CustomMetadata()
		p.Validate()
	}
	for _, e := range events {
		if e == nil {
			continue
		}
		c := e.Content()
		patch.NewEvent(patch.Fields{Content: c})
		if err := c.Decode(new(*sdkContent)); err != nil && sound {
			panic("a content of the right shape: " + err.Error() + ": " + c.String())
		}
		readParts(c, sound)
		for range e.Parts() {
		}
		e.Compaction()
		e.StandIn("x", 1, nil)
		e.CustomMetadata()
		e.StateDelta()
		for c := range e.Changes() {
			c.Value.Any()
			c.Value.Members()
		}
		for c := range e.SharedChanges() {
			c.Value.Any()
		}
		for range e.FunctionParts() {
		}
		e.Decode("content", new(any))
		e.Decode("actions", new(map[string]any))
		e.Decode("actions", new(patch.Actions))
		e.Decode("x", new(any))
	}
}

func readParts(c patch.Value, sound bool) {
	for _, p := range c.Parts() {
		_ = string(p.Kind) + p.Text + p.ID + p.Name + p.MIMEType + p.URI
		if sound && p.DataLen < 0 || p.Thought && p.Kind == patch.PartText {
			panic("a part of " + c.String())
		}
		for _, v := range []patch.Value{p.Args, p.Response, p.Value, p.JSON} {
			if sound && !json.Valid([]byte(v.String())) {
				panic("no JSON in " + c.String())
			}
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { "id" : "i" , "timestamp" : 1.5 } `, `{"seq":3,"timestamp":"2024-01-01T00:00:00.5+01:00","author":""}`,
		`{"content":{"role":"user","parts":[{"text":"\u0000\ud834\udd1e"},{"functionCall":{"id":"c","name":"f","args":{"n":1e400}}}]}}`,
		`{"actions":{"stateDelta":{"k":1.0,"temp:x":[],"app:y":-0},"compaction":{"startTimestamp":1,"endTimestamp":2}},"partial":false}`,
		`{"patchType":"splice","start":0,"count":1,"replacement":[{"id":"r"},{"actions":{"stateDelta":{"temp:x":1}}}],"base":0,"state":"keep"}`,
		`{"patchType":"summarise","start":0,"count":2,"summaryEvent":{"content":{"parts":[{"text":"s"}]}}}`,
		`{"patchType":"truncate_before","eventId":"e","base":null,"author":null}`,
		`{"patchType":"splice","start":"0","replacement":[{"patchType":"x"}],"summaryEvent":5}`,
		`{"id":"e","session_id":"s","timestamp":"1970-01-01T00:00:01.5Z","event_data":{"invocation_id":"i","content":{"parts":[{"inline_data":{"data":"-_8="}}]},"actions":{"state_delta":{"a_b":1}}}}`,
		`{"event_data":"{\"node_info\":{\"output_for\":[]},\"new_field\":1}"}`,
		`{"a":1,"\u0061":2}`, `{"longRunningToolIds":["c"],"usageMetadata":{"promptTokenCount":5},"customMetadata":{"a":[]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := patch.ParseRecord(text)
		if err != nil {
			if !errors.Is(err, patch.ErrInvalid) {
				t.Fatalf("%v does not match ErrInvalid", err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatal("the accepted text is not JSON")
		}
		readEverything(rec)
		line := marshal(t, rec)
		back := parse(t, line)
		if !patch.Same(rec, back) || !patch.Same(back, rec) || back.Seq != rec.Seq {
			t.Fatalf("%s is not the same as it was: %s", line, text)
		}
		if again := marshal(t, back); again != line {
			t.Fatalf("%s becomes %s", line, again)
		}
		if rec.Seq == 0 && rec.Size() != len(line) {
			t.Fatalf("the size of %s is %d, want %d", line, rec.Size(), len(line))
		}
		// Storing or completing a record does not change its content.
		logged := patch.Complete(rec, func() string { return "new" }, time.Unix(0, 0))
		if !patch.Same(stored(t, logged), rec) || logged.ID() == "" {
			t.Fatalf("logged as %s it is not the same as offered", marshal(t, logged))
		}
		if back := stored(t, rec); marshal(t, back) != line {
			t.Fatalf("stored, it is %s", marshal(t, back))
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	for _, rec := range sampleRecords(f) {
		f.Add(encode(f, rec)[5:])
	}
	f.Add(encode(f, patch.Record{Seq: 1, Event: newEvent(f, patch.Fields{
		Content:        map[string]any{"parts": []any{map[string]any{"functionCall": map[string]any{"id": "c", "args": map[string]any{"a": []any{1, "x"}}}}}},
		Actions:        patch.Actions{StateDelta: map[string]any{"a": [][]any{{uint8(1)}}, "b": []byte("a")}},
		CustomMetadata: map[string]any{"a": json.Number("1")}, LongRunningToolIDs: []string{"c"},
	})})[5:])
	// The fuzz target makes the checksum valid. Otherwise every input would fail at the checksum.
	f.Fuzz(func(t *testing.T, payload []byte) {
		form := seal(payload)
		rec, err := patch.DecodeRecord(form)
		if err != nil {
			if !errors.Is(err, patch.ErrCorrupt) {
				t.Fatalf("%v does not match ErrCorrupt", err)
			}
			return
		}
		readEverything(rec)
		if rec.Verify(nil) != nil {
			return // forged
		}
		line := marshal(t, rec)
		if back := parse(t, line); !patch.Same(rec, back) || back.Seq != rec.Seq {
			t.Fatalf("as a line it is another record: %s", line)
		}
		if back := stored(t, rec); marshal(t, back) != line {
			t.Fatalf("stored, it is %s", marshal(t, back))
		}
	})
}
