package adk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// filled is an event whose every field says something.
func filled() *session.Event {
	e := new(session.Event)
	(&filler{}).fill(reflect.ValueOf(e).Elem())
	e.Partial = false // a partial event is not logged
	return e
}

// lossless are events that come back as they are.
func lossless() map[string]*session.Event {
	empty := new(session.Event)
	emptied(reflect.ValueOf(empty).Elem(), 1)
	empty.ID, empty.NodeInfo.Path = "empty", "p"
	zero := &session.Event{ID: "zero"}
	old := text("old", "user", "x")
	old.Timestamp = time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)
	return map[string]*session.Event{"filled": filled(), "empty": empty, "zero": zero, "old": old}
}

func TestEventsComeBackEqual(t *testing.T) {
	for name, e := range lossless() {
		t.Run(name, func(t *testing.T) {
			p, err := adk.NewEvent(e)
			no(t, err)
			back, err := adk.SessionEvent(p)
			no(t, err)
			equal(t, "event", back, e)
		})
	}
	partial := filled()
	partial.Partial = true
	p, err := adk.NewEvent(partial)
	no(t, err)
	back, err := adk.SessionEvent(p)
	no(t, err)
	equal(t, "partial event", back, partial)
}

func TestEventsComeBackEqualFromTheStore(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		sess := create(t, s, "s", nil)
		var want []*session.Event
		for _, e := range lossless() {
			want = append(want, e)
			no(t, s.AppendEvent(t.Context(), sess, e))
		}
		for _, got := range []session.Session{sess, get(t, s, "s")} {
			for i, e := range want {
				equal(t, "event", got.Events().At(i), e)
			}
		}
	})
}

// A field that a new version of ADK brings is noticed: filled covers every one.
func TestFillerLeavesNothingZero(t *testing.T) {
	e := filled()
	for _, v := range []reflect.Value{reflect.ValueOf(e).Elem(), reflect.ValueOf(e.LLMResponse), reflect.ValueOf(e.Actions)} {
		for i := range v.NumField() {
			if f := v.Type().Field(i); v.Field(i).IsZero() && f.Name != "Partial" {
				t.Errorf("%s.%s is zero", v.Type(), f.Name)
			}
		}
	}
}

// A duration is written in seconds with every nanosecond.
func TestDurationsAreWrittenInFull(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1: `"0.000000001s"`, -1: `"-0.000000001s"`, time.Second: `"1s"`, -time.Second: `"-1s"`,
		1500 * time.Millisecond: `"1.5s"`, -2*time.Second - 50*time.Millisecond: `"-2.05s"`, 90 * time.Minute: `"5400s"`,
		math.MaxInt64: `"9223372036.854775807s"`, math.MinInt64: `"-9223372036.854775808s"`,
	} {
		e := &session.Event{LLMResponse: model.LLMResponse{Content: &genai.Content{Parts: []*genai.Part{{VideoMetadata: &genai.VideoMetadata{StartOffset: d}}}}}}
		p, err := adk.NewEvent(e)
		no(t, err)
		if text := p.String(); !strings.Contains(text, `"startOffset":`+want) {
			t.Errorf("%d nanoseconds are written in %s, want %s", d, text, want)
		}
		back, err := adk.SessionEvent(p)
		no(t, err)
		equal(t, "duration", back.Content.Parts[0].VideoMetadata.StartOffset, d)
	}
}

type mood string

type order struct {
	ID    int64          `json:"id"`
	Price float64        `json:"price"`
	Tags  []string       `json:"tags"`
	Note  string         `json:"note,omitempty"`
	More  map[string]any `json:"more"`
	note  string
}

// What does not come back with its Go type comes back as its JSON.
func TestValuesOfOtherTypes(t *testing.T) {
	seven := 7
	for _, c := range []struct {
		name      string
		give, get any
	}{
		{"struct", order{ID: 1<<53 + 1, Price: 5, note: "own", More: map[string]any{"e": errors.New("no")}},
			map[string]any{"id": int64(1<<53 + 1), "price": 5.0, "tags": nil, "more": map[string]any{"e": "no"}}},
		{"pointer", &seven, int64(7)},
		{"nil pointer", (*order)(nil), nil},
		{"defined type", mood("glad"), "glad"},
		{"list of structs", []order{{Tags: []string{}}},
			[]any{map[string]any{"id": int64(0), "price": 0.0, "tags": []any{}, "more": nil}}},
		{"error", errors.New("failed"), "failed"},
		{"time", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)},
		{"inside", map[string]any{"x": []any{mood("sad"), 1}}, map[string]any{"x": []any{"sad", 1}}},
		{"call", &genai.FunctionCall{ID: "c", Name: "f", Args: map[string]any{"n": 5.0}},
			map[string]any{"id": "c", "name": "f", "args": map[string]any{"n": 5.0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := adk.NewEvent(&session.Event{Output: c.give, Actions: session.EventActions{StateDelta: map[string]any{"k": c.give}}})
			no(t, err)
			back, err := adk.SessionEvent(p)
			no(t, err)
			equal(t, "output", back.Output, c.get)
			equal(t, "state delta", back.Actions.StateDelta["k"], c.get)
		})
	}
}

func TestValuesThatJSONCannotCarry(t *testing.T) {
	inside := map[string]any{}
	inside["again"] = inside
	type knot struct{ A, B any }
	tied := &knot{}
	tied.A, tied.B = tied, tied
	for name, v := range map[string]any{
		"channel": make(chan int), "function": func() {}, "NaN": math.NaN(), "infinity": math.Inf(1),
		"keys": map[int]string{1: "a"}, "text": "\xff", "inside itself": inside, "knot": tied,
		"struct": struct{ F float64 }{math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := adk.NewEvent(&session.Event{Actions: session.EventActions{StateDelta: map[string]any{"price": v}}})
			fails(t, err, patch.ErrInvalid)
			if !strings.Contains(err.Error(), "stateDelta/price") {
				t.Errorf("the error %q does not name the key", err)
			}
		})
	}
	fails(t, errOf(adk.NewEvent(nil)), patch.ErrInvalid)
}

// A request for confirmation, as ADK makes it, holds a call as a Go value; what comes back
// is read by ADK as that call.
func TestConfirmationRequest(t *testing.T) {
	call := &genai.FunctionCall{ID: "call-1", Name: "pay", Args: map[string]any{"sum": 12.0, "to": "x"}}
	e := &session.Event{ID: "e", Author: "agent", LongRunningToolIDs: []string{"ask-1"}, LLMResponse: model.LLMResponse{
		Content: &genai.Content{Role: "model", Parts: []*genai.Part{{FunctionCall: &genai.FunctionCall{
			ID: "ask-1", Name: toolconfirmation.FunctionCallName,
			Args: map[string]any{
				"originalFunctionCall": call,
				"toolConfirmation":     toolconfirmation.ToolConfirmation{Hint: "pay?", Payload: map[string]any{"n": 1}},
			},
		}}}},
	}}
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	no(t, svc.AppendEvent(t.Context(), sess, e))
	got, err := toolconfirmation.OriginalCallFrom(sess.Events().At(0).Content.Parts[0].FunctionCall)
	no(t, err)
	equal(t, "call", got, call)
	if _, ok := e.Content.Parts[0].FunctionCall.Args["originalFunctionCall"].(*genai.FunctionCall); !ok {
		t.Error("the appended event was changed")
	}
}

// Of an imported event with a field that ADK reads otherwise, the rest is there.
func TestSessionEventOfAForeignShape(t *testing.T) {
	p, err := patch.ParseEvent([]byte(`{"id":"e","author":"user","errorCode":7,"modelVersion":"m","new":{"x":1}}`))
	no(t, err)
	e, err := adk.SessionEvent(p)
	fails(t, err, patch.ErrInvalid)
	if !strings.Contains(err.Error(), "errorCode") {
		t.Errorf("the error %q does not name the field", err)
	}
	equal(t, "event", e, &session.Event{ID: "e", Author: "user", LLMResponse: model.LLMResponse{ModelVersion: "m"}})
}

// Neither changing an appended event nor one that a session gave changes anything.
func TestEventsAreTheCallersOwn(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	e := filled()
	e.Actions.StateDelta = map[string]any{"user:list": []any{"a"}, "own": map[string]any{"k": 1}}
	no(t, svc.AppendEvent(context.Background(), sess, e))
	p, err := adk.NewEvent(e)
	no(t, err)
	want, err := adk.SessionEvent(p)
	no(t, err)
	state := map[string]any{"user:list": []any{"a"}, "own": map[string]any{"k": 1}}
	check := func(what string) {
		t.Helper()
		for _, s := range []session.Session{sess, get(t, svc, "s")} {
			if s != sess || !adk.SameEvents {
				equal(t, what, s.Events().At(0), want)
			}
			equal(t, what, stateOf(s), state)
		}
	}
	check("at first")
	scribble(reflect.ValueOf(e).Elem())
	check("after the appended event was changed")
	scribble(reflect.ValueOf(sess.Events().At(0)).Elem())
	for got := range sess.Events().All() {
		scribble(reflect.ValueOf(got).Elem())
	}
	check("after an event that the session gave was changed")
	list, err := sess.State().Get("user:list")
	no(t, err)
	list.([]any)[0] = "changed"
	own, err := sess.State().Get("own")
	no(t, err)
	own.(map[string]any)["k"] = "changed"
	check("after a value of the state was changed")
}

// scribble changes everything in a value that can be changed in place.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			scribble(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				scribble(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
			v.Index(i).SetZero()
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			scribble(entries.Value())
		}
		v.Clear()
	}
	if v.CanSet() {
		v.SetZero()
	}
}

// filler sets every exported field of a value, at any depth, to something that careless
// encodings lose.
type filler struct {
	n      int64
	within []reflect.Type
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Type() {
	case reflect.TypeFor[time.Duration]():
		v.SetInt(-f.n*1e9 - 987654321)
		return
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2024, 2, 29, 23, 59, 59, int(f.n)+1e8, time.UTC)))
		return
	case reflect.TypeFor[jsonschema.Schema]():
		// Its fields exclude one another; its JSON is its own.
		v.Set(reflect.ValueOf(jsonschema.Schema{
			Type: "object", Title: fmt.Sprint("schema ", f.n), Required: []string{"b"},
			Properties: map[string]*jsonschema.Schema{
				"b": {Type: "integer"}, "a": {Types: []string{"string", "null"}, Default: json.RawMessage(`"x"`)},
			},
			Extra: map[string]any{"x-order": []any{"b", "a"}},
		}))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		if slices.Contains(f.within, v.Type()) {
			return // a type inside itself: once is enough
		}
		f.within = append(f.within, v.Type())
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i))
			}
		}
		f.within = f.within[:len(f.within)-1]
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(elem)
			v.SetMapIndex(key, elem)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("<text> & %d \x00\x1b\u2028𝄞", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-f.n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n) | 0x80)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(-float64(f.n) / 3)
	case reflect.Interface:
		v.Set(reflect.ValueOf(values(f.n)))
	default:
		panic("no rule for " + v.Type().String())
	}
}

// values are such as stand in an `any`.
func values(n int64) map[string]any {
	return map[string]any{
		"int": int(n), "int64": int64(1<<53 + 1), "uint8": uint8(7), "float": 5.0, "float32": float32(0.1),
		"negative zero": math.Copysign(0, -1), "true": true, "nil": nil, "bytes": []byte{0, 255},
		"number": json.Number("1e400"), "strings": []string{"a", ""}, "empty": []any{}, "none": map[string]any{},
		"deep": map[string]any{"list": []any{map[string]any{"n": n}, 0.1, "x"}},
	}
}

// emptied makes every pointer, map and slice one that is there and empty.
func emptied(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			emptied(v.Elem(), depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				emptied(v.Field(i), depth)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	}
}

// Records of compaction as ADK for Go and for Python write them into an event's actions.
const (
	goRecord = `{"startTimestamp":"2026-01-02T03:04:05.123456789Z","endTimestamp":"2026-01-02T03:04:06.5Z",` +
		`"compactedContent":{"parts":[{"text":"told"}],"role":"model"},` +
		`"excludedEvents":[{"invocationId":"i","timestamp":"2026-01-02T03:04:05.987654321Z"}]}`
	pythonRecord = `{"startTimestamp":1767323045.123457,"endTimestamp":1767323046.5,"compactedContent":{"role":"model","parts":[{"text":"told"}]}}`
)

// withRecord puts a record into an event's actions, if this ADK has a place for it.
func withRecord(t *testing.T, e *session.Event) *session.Event {
	t.Helper()
	no(t, json.Unmarshal([]byte(`{"compaction":`+goRecord+`}`), &e.Actions))
	if recordIn(t, e) == "" {
		t.Skip("this version of ADK has no compaction records")
	}
	return e
}

// recordIn is the record in an event's actions, as ADK writes it, or "".
func recordIn(t *testing.T, e *session.Event) string {
	t.Helper()
	text, err := json.Marshal(e.Actions)
	no(t, err)
	var actions struct{ Compaction json.RawMessage }
	no(t, json.Unmarshal(text, &actions))
	return string(actions.Compaction)
}

// ADK's records come back whole.
func TestRecordsComeBackEqual(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		e := withRecord(t, &session.Event{ID: "r", Author: "user", InvocationID: "e-1"})
		sess := create(t, s, "s", nil)
		no(t, s.AppendEvent(t.Context(), sess, e))
		for _, got := range []session.Session{sess, get(t, s, "s")} {
			equal(t, "event", got.Events().At(0), e)
			equal(t, "record", recordIn(t, got.Events().At(0)), recordIn(t, e))
		}
	})
}

// A record that this ADK cannot hold, or that another has written, is kept as it came, and what
// ADK can read of it is read.
func TestRecordsOfOtherVersions(t *testing.T) {
	db := opened(t)(store.OpenMemory(store.Options{}))
	svc := newService(t, db)
	sess := create(t, svc, "s", nil)
	for id, record := range map[string]string{"go": goRecord, "python": pythonRecord} {
		text := `{"id":"` + id + `","author":"user","actions":{"stateDelta":{"` + id + `":1},"compaction":` + record + `}}`
		e, err := patch.ParseEvent([]byte(text))
		no(t, err)
		no(t, errOf(db.AppendEvents(t.Context(), store.Key{App: "app", User: "user", Session: "s"}, store.AppendOptions{}, e)))
	}
	for r, err := range svc.RawEvents(t.Context(), sess, 1) {
		no(t, err)
		want := map[string]string{"go": goRecord, "python": pythonRecord}[r.ID()]
		if !strings.Contains(r.Event.String(), `"compaction":`+want) {
			t.Errorf("the log has %s", r.Event)
		}
		e, err := adk.SessionEvent(r.Event)
		no(t, err)
		equal(t, "state", e.Actions.StateDelta, map[string]any{r.ID(): 1.0})
		got := recordIn(t, e)
		if got == "" {
			continue // an ADK without them
		}
		from := map[string]string{"go": "2026-01-02T03:04:05.123456789Z", "python": "2026-01-02T03:04:05.123457Z"}[r.ID()]
		if !strings.Contains(got, `"startTimestamp":"`+from+`"`) || !strings.Contains(got, `"told"`) {
			t.Errorf("ADK reads %s", got)
		}
	}
}

// To ADK, a summary of patchlog's is an event like others: it stands where it belongs, and is
// no record that ADK is to apply.
func TestSummariesAreNoRecordsToADK(t *testing.T) {
	svc := compacted(t, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2}})
	exchanges(t, svc, "app", 4)
	svc.Settle(t)
	summaries := 0
	for i, e := range get(t, svc, "s").(*adk.Session).View().Entries() {
		got := get(t, svc, "s").Events().At(i)
		if record := recordIn(t, got); record != "" {
			t.Errorf("ADK is given the record %s", record)
		}
		if e.Summary {
			summaries++
			equal(t, "role", got.Content.Role, genai.RoleUser)
		}
	}
	if summaries == 0 {
		t.Error("nothing was summarised")
	}
}

// Times in Unix seconds become such as ADK for Go reads; all else stays.
func TestGoTimes(t *testing.T) {
	for _, c := range []struct{ give, want string }{
		{`{"a":[1.0],"compaction":` + pythonRecord + `}`,
			`{"a":[1.0],"compaction":{"compactedContent":{"role":"model","parts":[{"text":"told"}]},"endTimestamp":"2026-01-02T03:04:06.5Z","startTimestamp":"2026-01-02T03:04:05.123457Z"}}`},
		{`{"compaction":{"startTimestamp":0,"endTimestamp":null,"excludedEvents":[{"invocationId":"i","timestamp":"1970-01-01T00:00:01.5Z","x":1}]}}`,
			`{"compaction":{"endTimestamp":null,"excludedEvents":[{"invocationId":"i","timestamp":"1970-01-01T00:00:01.5Z","x":1}],"startTimestamp":"1970-01-01T00:00:00Z"}}`},
		{`{"compaction":{"startTimestamp":1e300,"endTimestamp":"soon","excludedEvents":null}}`,
			`{"compaction":{"endTimestamp":"soon","excludedEvents":null,"startTimestamp":1e300}}`},
		{`{"compaction":7}`, ``}, {`{}`, ``}, {`7`, ``},
	} {
		equal(t, c.give, string(adk.WithGoTimes(json.RawMessage(c.give))), c.want)
	}
}

// What a newer ADK's types have besides is kept too.
func TestFieldsOfNewerVersions(t *testing.T) {
	type Response struct{ Content, Voice string }
	type Event struct {
		Response
		ID         string `json:"id"`
		Mood       string `json:"mood,omitempty"`
		NotInJSON  int    `json:"-"`
		own        int
		LongNumber time.Duration
	}
	_ = Event{own: 1}
	equal(t, "fields", adk.MoreFields(reflect.TypeFor[Event](), "id"), []string{"mood", "longNumber"})
	equal(t, "fields", adk.MoreFields(reflect.TypeFor[Response](), "content"), []string{"voice"})
}

// Where ADK has compaction records, it tells a session's events apart by their addresses: a session gives the same
// again, after appends and patches too, and another session others.
func TestSameEvents(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	sess.(*adk.Session).GiveSameEvents()
	for _, id := range []string{"a", "b", "c"} {
		no(t, svc.AppendEvent(t.Context(), sess, text(id, "user", id)))
	}
	b := sess.Events().At(1)
	for e := range sess.Events().All() {
		if (e == b) != (e.ID == "b") {
			t.Errorf("%s is given as another event", e.ID)
		}
	}
	no(t, errOf(svc.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))))
	if sess.Events().At(0) != b {
		t.Error("after a patch, it is another event")
	}
	if get(t, svc, "s").Events().At(0) == b {
		t.Error("two sessions share an event")
	}
}

// Recorded events are read as ADK reads them, whether they went through the service or
// were imported as they are.
func TestCorpus(t *testing.T) {
	for _, set := range recorded.Sets(t) {
		t.Run(set.Name, func(t *testing.T) { readAsADKDoes(t, set.Sample(t, 9)) })
	}
}

func readAsADKDoes(t *testing.T, files []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.db")
	db := opened(t)(store.Open(path, store.Options{Durability: store.Relaxed}))
	svc := newService(t, db)
	want := map[string][]*session.Event{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		no(t, err)
		sess := create(t, svc, file, nil)
		for line := range bytes.Lines(text) {
			var e session.Event
			d := json.NewDecoder(bytes.NewReader(line))
			d.DisallowUnknownFields()
			no(t, d.Decode(&e))
			want[file] = append(want[file], &e)
			no(t, svc.AppendEvent(t.Context(), sess, &e))
		}
		key := store.Key{App: "app", User: "user", Session: "imported " + file}
		no(t, errOf(db.Import(t.Context(), key, bytes.NewReader(text), store.ImportOptions{Name: file})))
	}
	no(t, db.Close())
	db = opened(t)(store.Open(path, store.Options{Durability: store.Relaxed}))
	svc, err := adk.NewService(db, adk.Options{}.WithCache(-1))
	no(t, err)
	for file, events := range want {
		for _, id := range []string{file, "imported " + file} {
			got := get(t, svc, id).Events()
			equal(t, id, got.Len(), len(events))
			for i, e := range events {
				equal(t, id, got.At(i), e)
			}
		}
	}
}
