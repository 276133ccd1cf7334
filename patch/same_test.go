package patch_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestSame(t *testing.T) {
	const event = `{"id":"i","timestamp":"2024-01-01T00:00:00.5Z","author":"a","actions":{"stateDelta":{"k":1}}}`
	const splice = `{"id":"p","timestamp":"2024-01-01T00:00:00Z","patchType":"splice","start":0,"count":2,"replacement":[{"id":"r","timestamp":"2024-01-01T00:00:00Z","author":"a"}],"base":3}`
	const summary = `{"id":"p","patchType":"summarise","start":0,"count":2,"summaryEvent":{"id":"s","content":{"parts":[{"text":"x"}]}}}`
	for _, c := range []struct {
		name            string
		logged, offered string
		same            bool
	}{
		{"itself", event, event, true},
		{"no id offered", event, `{"timestamp":"2024-01-01T00:00:00.5Z","author":"a","actions":{"stateDelta":{"k":1}}}`, true},
		{"no time offered", event, `{"id":"i","author":"a","actions":{"stateDelta":{"k":1}}}`, true},
		{"the instant in another zone", event, `{"id":"i","timestamp":"2024-01-01T01:00:00.500000+01:00","author":"a","actions":{"stateDelta":{"k":1}}}`, true},
		{"the instant in seconds", event, `{"id":"i","timestamp":"2024-01-01T00:00:00.5Z","author":"a","actions":{"stateDelta":{"k":1}}}`, true},
		{"another time", event, `{"id":"i","timestamp":"2024-01-01T00:00:00.500000001Z","author":"a","actions":{"stateDelta":{"k":1}}}`, false},
		{"another id", event, `{"id":"j","author":"a","actions":{"stateDelta":{"k":1}}}`, false},
		{"another author", event, `{"id":"i","author":"b","actions":{"stateDelta":{"k":1}}}`, false},
		{"another invocation", event, `{"id":"i","invocationId":"v","author":"a","actions":{"stateDelta":{"k":1}}}`, false},
		{"another branch", event, `{"id":"i","branch":"v","author":"a","actions":{"stateDelta":{"k":1}}}`, false},
		{"another scope", event, `{"id":"i","isolationScope":"v","author":"a","actions":{"stateDelta":{"k":1}}}`, false},
		{"a key in temp:", event, `{"id":"i","author":"a","actions":{"stateDelta":{"temp:x":1,"k":1,"temp:y":{}}}}`, true},
		{"a key in another scope", event, `{"id":"i","author":"a","actions":{"stateDelta":{"k":1,"app:x":1}}}`, false},
		{"a float for an integer", event, `{"id":"i","author":"a","actions":{"stateDelta":{"k":1.0}}}`, false},
		{"a field more", event, `{"id":"i","author":"a","actions":{"stateDelta":{"k":1}},"x":null}`, false},
		{"another field", `{"x":1}`, `{"y":1}`, false},
		{"a field less", event, `{"id":"i","author":"a"}`, false},
		{"seqs do not count", `{"seq":1,"id":"i"}`, `{"seq":2,"id":"i"}`, true},
		{"an event for a patch", `{"id":"p"}`, splice, false},
		{"a patch for an event", splice, `{"id":"p"}`, false},

		{"keys in another order", `{"x":{"a":1,"b":{"c":[],"d":null}}}`, `{"x":{"b":{"d":null,"c":[]},"a":1}}`, true},
		{"numbers by kind and value", `{"x":[1.0,100.0,1e400]}`, `{"x":[1e0,1E02,10e399]}`, true},
		{"a number of more digits", `{"x":9007199254740993}`, `{"x":9007199254740992}`, false},
		{"strings by their text", `{"x":{"a":"é/"}}`, `{"x":{"\u0061":"\u00e9\/"}}`, true},
		{"lists in another order", `{"x":[1,2]}`, `{"x":[2,1]}`, false},
		{"a longer list", `{"x":[1]}`, `{"x":[1,1]}`, false},
		{"a shorter list", `{"x":[1,1]}`, `{"x":[1]}`, false},
		{"null for false", `{"x":null}`, `{"x":false}`, false},
		{"true for false", `{"x":true}`, `{"x":false}`, false},

		{"splice: itself", splice, splice, true},
		{"splice: fields filled by the engine", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"author":"a"}]}`, true},
		{"splice: default state said", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"author":"a"}],"state":"drop"}`, true},
		{"splice: other state", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"author":"a"}],"state":"keep"}`, false},
		{"splice: other base", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"author":"a"}],"base":0}`, false},
		{"splice: base where none is", `{"patchType":"splice","start":0,"count":2}`, `{"patchType":"splice","start":0,"count":2,"base":0}`, false},
		{"splice: other start", splice, `{"patchType":"splice","start":1,"count":2,"replacement":[{"author":"a"}]}`, false},
		{"splice: other count", splice, `{"patchType":"splice","start":0,"count":1,"replacement":[{"author":"a"}]}`, false},
		{"splice: no count", splice, `{"patchType":"splice","start":0,"replacement":[{"author":"a"}]}`, false},
		{"splice: no replacement", splice, `{"patchType":"splice","start":0,"count":2}`, false},
		{"splice: more replacement", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"author":"a"},{}]}`, false},
		{"splice: other replacement", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"author":"b"}]}`, false},
		{"splice: other id within", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"id":"q","author":"a"}]}`, false},
		{"splice: unknown field", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"author":"a"}],"x":1}`, false},
		{"splice: without ids", splice, `{"patchType":"splice","start":0,"count":2,"replacement":[{"author":"a"}]}`, true},
		{"another type", splice, `{"patchType":"truncate_before","eventId":"x"}`, false},
		{"truncate_before: another event", `{"patchType":"truncate_before","eventId":"y"}`, `{"patchType":"truncate_before","eventId":"x"}`, false},
		{"summarise: itself", summary, summary, true},
		{"summarise: fields filled by the engine", summary, `{"patchType":"summarise","start":0,"count":2,"state":"keep","summaryEvent":{"content":{"parts":[{"text":"x"}]}}}`, true},
		{"summarise: another text", summary, `{"patchType":"summarise","start":0,"count":2,"summaryEvent":{"content":{"parts":[{"text":"y"}]}}}`, false},
		{"summarise: no summary", summary, `{"patchType":"summarise","start":0,"count":2}`, false},
		{"malformed alike", `{"patchType":"splice","start":"0","count":1}`, `{"count":1,"start":"0","patchType":"splice"}`, true},
		{"malformed otherwise", `{"patchType":"splice","start":"0","count":1}`, `{"count":1,"start":"1","patchType":"splice"}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			logged := stored(t, parse(t, c.logged))
			if got := patch.Same(logged, parse(t, c.offered)); got != c.same {
				t.Errorf("Same is %v:\n%s\n%s", got, c.logged, c.offered)
			}
		})
	}
	if patch.Same(patch.Record{}, patch.Record{}) {
		t.Error("two records of nothing are the same")
	}
}

// Same ignores Go types, so it recognises a retry that was parsed from JSON.
func TestSameIgnoresGoTypes(t *testing.T) {
	made := newEvent(t, patch.Fields{ID: "i", Actions: patch.Actions{StateDelta: map[string]any{
		"n": 5, "f": 5.0, "b": []byte("ab"), "temp:x": 1, "s": []string{"x"},
	}}})
	offered := patch.Record{Event: made}
	logged := patch.Complete(offered, nil, time.Now())
	fromJSON := parse(t, `{"id":"i","actions":{"stateDelta":{"s":["x"],"b":"YWI=","f":5.0,"n":5}}}`)
	if !patch.Same(logged, offered) || !patch.Same(stored(t, logged), fromJSON) || !patch.Same(stored(t, patch.Complete(fromJSON, nil, time.Now())), offered) {
		t.Error("the event is not the same as its JSON")
	}
}

func TestComplete(t *testing.T) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 1, time.FixedZone("", 3600))
	n := 0
	newID := func() string { n++; return "new" + strconv.Itoa(n) }
	for _, c := range []struct{ name, offered, logged string }{
		{"event", `{"author":"a"}`,
			`{"id":"new1","author":"a","timestamp":"2023-12-31T23:00:00.000000001Z"}`},
		{"event with id", `{"id":"i"}`, `{"id":"i","timestamp":"2023-12-31T23:00:00.000000001Z"}`},
		{"event with time", `{"timestamp":"0001-01-01T00:00:00Z"}`, `{"id":"new1","timestamp":"0001-01-01T00:00:00Z"}`},
		{"temp: keys", `{"id":"i","timestamp":"1970-01-01T00:00:00Z","x":1,"actions":{"a":{"temp:x":1},"stateDelta":{"temp:":1,"k":1.0,"temp:x":{},"app:temp:y":2,"Temp:z":3,"temperature":4},"b":[]}}`,
			`{"id":"i","timestamp":"1970-01-01T00:00:00Z","x":1,"actions":{"a":{"temp:x":1},"stateDelta":{"k":1.0,"app:temp:y":2,"Temp:z":3,"temperature":4},"b":[]}}`},
		{"temp: keys alone", `{"id":"i","timestamp":"1970-01-01T00:00:00Z","actions":{"stateDelta":{"temp:x":1}}}`,
			`{"id":"i","timestamp":"1970-01-01T00:00:00Z","actions":{"stateDelta":{}}}`},
		{"splice", `{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a","timestamp":"1970-01-01T00:00:00Z"},{"actions":{"stateDelta":{"temp:x":1}}}]}`,
			`{"id":"p","timestamp":"2023-12-31T23:00:00.000000001Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a","timestamp":"1970-01-01T00:00:00Z"},{"id":"new1","timestamp":"2023-12-31T23:00:00.000000001Z","actions":{"stateDelta":{}}}]}`},
		{"summarise", `{"patchType":"summarise","timestamp":"1970-01-01T00:00:00Z","start":0,"count":1,"summaryEvent":{"timestamp":"1970-01-01T00:00:00Z"}}`,
			`{"id":"new1","timestamp":"1970-01-01T00:00:00Z","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"new2","timestamp":"1970-01-01T00:00:00Z"}}`},
		{"truncate_before", `{"patchType":"truncate_before","eventId":"x"}`,
			`{"id":"new1","timestamp":"2023-12-31T23:00:00.000000001Z","patchType":"truncate_before","eventId":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n = 0
			offered := parse(t, c.offered)
			was := marshal(t, offered)
			logged := patch.Complete(offered, newID, now)
			if got := marshal(t, logged); got != c.logged {
				t.Errorf("logged is\n%s, want\n%s", got, c.logged)
			}
			if marshal(t, offered) != was {
				t.Error("Complete changed the offered record")
			}
			if !patch.Same(logged, offered) {
				t.Error("the logged record is not the same as the offered one")
			}
			if again := patch.Complete(logged, newID, time.Time{}); again != logged {
				t.Error("completing twice gives another record")
			}
			if logged.Size() != len(c.logged) {
				t.Errorf("Size is %d, want %d", logged.Size(), len(c.logged))
			}
		})
	}
}

// When Complete removes "temp:" keys, it also removes their Go types.
func TestCompleteOfAnEventFromGo(t *testing.T) {
	delta := func() map[string]any {
		return map[string]any{"a": 1, "temp:": 2, "temp:a/b": []any{3}, "temp:x": int8(4), "u": uint8(5)}
	}
	rec := patch.Record{Event: newEvent(t, patch.Fields{Actions: patch.Actions{StateDelta: delta()}, CustomMetadata: delta()})}
	logged := stored(t, patch.Complete(rec, func() string { return "i" }, time.Now()))
	wantEqual(t, "state delta", logged.Event.StateDelta(), map[string]any{"a": 1, "u": uint8(5)})
	wantEqual(t, "custom metadata", logged.Event.CustomMetadata(), delta())
	wantEqual(t, "offered state delta", rec.Event.StateDelta(), delta())
}

// Complete removes the "temp:" keys and changes nothing else.
func TestWithoutTemp(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"actions":{"stateDelta":{"temp:a":1,"b":2}}}`, `{"actions":{"stateDelta":{"b":2}}}`},
		{`{"id":"e","actions":{"stateDelta":{"b":2}}}`, `{"id":"e","actions":{"stateDelta":{"b":2}}}`},
		{`{"patchType":"splice","start":0,"count":0,"replacement":[{"actions":{"stateDelta":{"temp:a":1}}},{"author":"x"}]}`,
			`{"patchType":"splice","start":0,"count":0,"replacement":[{"actions":{"stateDelta":{}}},{"author":"x"}]}`},
		{`{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"actions":{"stateDelta":{"temp:a":1}}}}`,
			`{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"actions":{"stateDelta":{}}}}`},
	} {
		r := testlog.Must(patch.ParseRecord([]byte(c.text)))(t)
		before, _ := r.MarshalJSON()
		got, err := patch.Complete(r, nil, time.Time{}).MarshalJSON()
		if err != nil || string(got) != c.want {
			t.Errorf("got %s (%v), want %s", got, err, c.want)
		}
		if after, _ := r.MarshalJSON(); string(after) != string(before) {
			t.Errorf("the record became %s", after)
		}
	}
}
