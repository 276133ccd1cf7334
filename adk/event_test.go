package adk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// fullEvent returns an event with a value in every field. Each value is one that a careless encoding would
// change.
func fullEvent() *session.Event {
	e, n := new(session.Event), int64(0)
	leaf := func(v reflect.Value) bool {
		n++
		switch v.Interface().(type) {
		case time.Duration:
			v.SetInt(-n*1e9 - 987654321)
			return true
		case time.Time:
			v.Set(reflect.ValueOf(time.Date(2024, 2, 29, 23, 59, 59, int(n)+1e8, time.UTC)))
			return true
		case jsonschema.Schema:
			// Set the Schema's fields by hand, because they exclude one another and Schema has its own
			// MarshalJSON.
			v.Set(reflect.ValueOf(jsonschema.Schema{
				Type: "object", Title: fmt.Sprint("schema ", n), Required: []string{"b"},
				Properties: map[string]*jsonschema.Schema{
					"b": {Type: "integer"}, "a": {Types: []string{"string", "null"}, Default: json.RawMessage(`"x"`)},
				},
				Extra: map[string]any{"x-order": []any{"b", "a"}},
			}))
			return true
		}
		return setLeaf(v, func() string { return fmt.Sprintf("<text> & %d \x00\x1b\u2028𝄞", n) }, func() int64 { return -n }, func() any { return values(n) })
	}
	fill := filler{leaf: leaf, include: func() bool { return true }, length: func() int { return 2 }}
	fill.fill(reflect.ValueOf(e).Elem())
	e.Partial = false // the log does not contain partial events
	return e
}

func losslessEvents() map[string]*session.Event {
	empty := new(session.Event)
	setEmpty(reflect.ValueOf(empty).Elem(), 1)
	empty.ID, empty.NodeInfo.Path = "empty", "p"
	zero := &session.Event{ID: "zero"}
	old := textEvent("old", "user", "x")
	old.Timestamp = time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)
	return map[string]*session.Event{"filled": fullEvent(), "empty": empty, "zero": zero, "old": old}
}

func TestEventRoundTrip(t *testing.T) {
	onEachBackend(t, func(t *testing.T, s reopeningService) {
		sess := create(t, s, "s", nil)
		var want []*session.Event
		for _, e := range losslessEvents() {
			want = append(want, e)
			noError(t, s.AppendEvent(t.Context(), sess, e))
		}
		for _, got := range []session.Session{sess, get(t, s, "s")} {
			for _, e := range want {
				equal(t, "event", eventByID(got, e.ID), e)
			}
		}
	})
}

func eventByID(s session.Session, id string) *session.Event {
	for e := range s.Events().All() {
		if e.ID == id {
			return e
		}
	}
	return nil
}

func TestDurationPrecision(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1: `"0.000000001s"`, -1: `"-0.000000001s"`, time.Second: `"1s"`, -time.Second: `"-1s"`,
		1500 * time.Millisecond: `"1.5s"`, -2*time.Second - 50*time.Millisecond: `"-2.05s"`, 90 * time.Minute: `"5400s"`,
		math.MaxInt64: `"9223372036.854775807s"`, math.MinInt64: `"-9223372036.854775808s"`,
	} {
		e := &session.Event{LLMResponse: model.LLMResponse{Content: &genai.Content{Parts: []*genai.Part{{VideoMetadata: &genai.VideoMetadata{StartOffset: d}}}}}}
		p, err := adk.NewEvent(e)
		noError(t, err)
		if text := p.String(); !strings.Contains(text, `"startOffset":`+want) {
			t.Errorf("%d nanoseconds are written in %s, want %s", d, text, want)
		}
		back, err := adk.SessionEvent(p)
		noError(t, err)
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

// If the log cannot keep the Go type of a value, the value is read back as its JSON decodes.
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
		{"list of errors", []error{errors.New("no")}, []any{map[string]any{}}},
		{"keys that are numbers", map[int]string{1: "a"}, map[string]any{"1": "a"}},
		{"keys in a struct", struct{ M map[int]order }{map[int]order{2: {Tags: []string{"a"}}}},
			map[string]any{"M": map[string]any{"2": map[string]any{"id": int64(0), "price": int64(0), "tags": []any{"a"}, "more": nil}}}},
		{"time", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)},
		{"inside", map[string]any{"x": []any{mood("sad"), 1}}, map[string]any{"x": []any{"sad", 1}}},
		{"call", &genai.FunctionCall{ID: "c", Name: "f", Args: map[string]any{"n": 5.0}},
			map[string]any{"id": "c", "name": "f", "args": map[string]any{"n": 5.0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := adk.NewEvent(&session.Event{Output: c.give, Actions: session.EventActions{StateDelta: map[string]any{"k": c.give}}})
			noError(t, err)
			back, err := adk.SessionEvent(p)
			noError(t, err)
			equal(t, "output", back.Output, c.get)
			equal(t, "state delta", back.Actions.StateDelta["k"], c.get)
		})
	}
}

// An event with a nil part is logged, although ADK's methods panic on it.
func TestNilParts(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		e := textEvent("e", "app", "hi")
		e.Content.Parts = append(e.Content.Parts, nil)
		noError(t, s.AppendEvent(t.Context(), create(t, s, "s", nil), e))
		equal(t, "parts", len(get(t, s, "s").Events().At(0).Content.Parts), 2)
	})
}

// U+FFFD replaces bytes that are not UTF-8, in every field. Each run logs one warning about them.
func TestInvalidUTF8(t *testing.T) {
	const bad, good = "half \xed\xa0\xbd \xff", "half \ufffd\ufffd\ufffd \ufffd"
	event := func(id, text string) *session.Event {
		call := &genai.FunctionCall{ID: "c" + text, Name: "f", Args: map[string]any{
			"text": text, "list": []string{text, "ok"}, "deep": []any{map[string]any{text: text}}, "bytes": []byte(bad), "n": 7,
		}}
		return &session.Event{
			ID: id, InvocationID: "i", Author: "root", Branch: "b" + text, Timestamp: time.Unix(1, 0).UTC(), Output: text,
			LLMResponse: model.LLMResponse{
				ErrorMessage: text, CustomMetadata: map[string]any{"m": text},
				Content: &genai.Content{Role: "model", Parts: []*genai.Part{{Text: text, FunctionCall: call}, {InlineData: &genai.Blob{Data: []byte(bad), MIMEType: text}}}},
			},
			Actions: session.EventActions{StateDelta: map[string]any{
				"k": text, "user:u": text, "app:" + text: map[string]string{text: text}, "order": map[string]any{"note": text},
			}},
			LongRunningToolIDs: []string{"c" + text},
		}
	}
	for _, where := range []string{"store", "wrapped"} {
		t.Run(where, func(t *testing.T) {
			var log bytes.Buffer
			opts := adk.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			svc, err := adk.NewService(inMemoryStore(t), opts)
			if where == "wrapped" {
				svc, err = adk.Wrap(session.InMemoryService(), opts)
			}
			noError(t, err)
			sess := create(t, svc, "s", map[string]any{"first": bad, "user:first": []string{bad}})
			equal(t, "warnings of a create", strings.Count(log.String(), "not valid UTF-8"), 1)
			log.Reset()
			given := event("e", bad)
			for range 2 { // the second append is a retry
				noError(t, svc.AppendEvent(t.Context(), sess, given))
			}
			noError(t, svc.AppendEvent(t.Context(), sess, event("e2", bad)))
			equal(t, "warnings of a run", strings.Count(log.String(), "not valid UTF-8"), 1)
			equal(t, "what was given", given, event("e", bad))
			for _, s := range []session.Session{sess, get(t, svc, "s")} {
				equal(t, "events", s.Events().Len(), 2)
				equal(t, "event", s.Events().At(0), event("e", good))
				for key, want := range map[string]any{
					"k": good, "user:u": good, "app:" + good: map[string]string{good: good}, "order": map[string]any{"note": good},
					"first": good, "user:first": []string{good},
				} {
					value, err := s.State().Get(key)
					noError(t, err)
					equal(t, key, value, want)
				}
			}
		})
	}
}

func TestUnencodableValues(t *testing.T) {
	inside := map[string]any{}
	inside["again"] = inside
	type knot struct{ A, B any }
	tied := &knot{}
	tied.A, tied.B = tied, tied
	for name, v := range map[string]any{
		"channel": make(chan int), "function": func() {}, "NaN": math.NaN(), "infinity": math.Inf(1),
		"inside itself": inside, "knot": tied,
		"struct": struct{ F float64 }{math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := adk.NewEvent(&session.Event{Actions: session.EventActions{StateDelta: map[string]any{"price": v}}})
			wantError(t, err, patch.ErrInvalid)
			if !strings.Contains(err.Error(), "stateDelta/price") {
				t.Errorf("the error %q does not name the key", err)
			}
		})
	}
	wantError(t, errOf(adk.NewEvent(nil)), patch.ErrInvalid)
}

// Each session has its own copies of the events. It returns the same copy each time.
func TestEventCopies(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	e := fullEvent()
	e.Actions.StateDelta = map[string]any{"user:list": []any{"a"}, "own": map[string]any{"k": 1}}
	noError(t, svc.AppendEvent(context.Background(), sess, e))
	p, err := adk.NewEvent(e)
	noError(t, err)
	want, err := adk.SessionEvent(p)
	noError(t, err)
	state := map[string]any{"user:list": []any{"a"}, "own": map[string]any{"k": 1}}
	check := func(what string) {
		t.Helper()
		for _, s := range []session.Session{sess, get(t, svc, "s")} {
			equal(t, what, s.Events().At(0), want)
			equal(t, what, stateOf(s), state)
		}
	}
	check("at first")
	scribble(reflect.ValueOf(e).Elem())
	check("after the appended event was changed")
	given := get(t, svc, "s")
	for range 2 {
		for got := range given.Events().All() {
			scribble(reflect.ValueOf(got).Elem())
			if got != given.Events().At(0) {
				t.Error("the session returned another copy of the event")
			}
		}
		check("after an event that another session gave was changed")
	}
	first := sess.Events().At(0)
	noError(t, svc.AppendEvent(t.Context(), sess, textEvent("next", "agent", "x")))
	if first != sess.Events().At(0) {
		t.Error("the session returned another copy of the event after an append")
	}
	list, err := sess.State().Get("user:list")
	noError(t, err)
	list.([]any)[0] = "changed"
	own, err := sess.State().Get("own")
	noError(t, err)
	own.(map[string]any)["k"] = "changed"
	check("after a value of the state was changed")
}

// scribble changes everything in v that can be changed in place.
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

// filler sets the exported fields of a value, at every depth.
type filler struct {
	leaf    func(v reflect.Value) bool // sets a value; returns false if the fields or elements of the value must be set instead
	include func() bool                // reports whether to set the next field
	length  func() int                 // returns the length of the next slice or map
	within  []reflect.Type
}

func (f *filler) fill(v reflect.Value) {
	if f.leaf(v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		if slices.Contains(f.within, v.Type()) {
			return // a recursive type is filled only once
		}
		f.within = append(f.within, v.Type())
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && f.include() {
				f.fill(v.Field(i))
			}
		}
		f.within = f.within[:len(f.within)-1]
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), f.length(), 2))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.length() {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(elem)
			v.SetMapIndex(key, elem)
		}
	default:
		panic("no rule for " + v.Type().String())
	}
}

// setLeaf sets a string, a bool, a number or a value of type any. It returns false for values of other types.
func setLeaf(v reflect.Value, text func() string, number func() int64, anything func() any) bool {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(number())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(number()) & 0xff)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(number()) / 3)
	case reflect.Interface:
		if x := anything(); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		return false
	}
	return true
}

// values returns examples of values for a field of type any.
func values(n int64) map[string]any {
	return map[string]any{
		"int": int(n), "int64": int64(1<<53 + 1), "uint8": uint8(7), "float": 5.0, "float32": float32(0.1),
		"negative zero": math.Copysign(0, -1), "true": true, "nil": nil, "bytes": []byte{0, 255},
		"number": json.Number("1e400"), "strings": []string{"a", ""}, "empty": []any{}, "none": map[string]any{},
		"deep": map[string]any{"list": []any{map[string]any{"n": n}, 0.1, "x"}},
	}
}

// setEmpty sets every pointer, map and slice to an empty value that is not nil.
func setEmpty(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			setEmpty(v.Elem(), depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				setEmpty(v.Field(i), depth)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	}
}

// Events that ADK has recorded are read back unchanged, both after an append through the service and after an
// import.
func TestCorpus(t *testing.T) {
	for name, pattern := range map[string]string{"small": "../fuzz/testdata/sessions/*/*.jsonl", "large": "../../shared/corpus/*/*.jsonl"} {
		t.Run(name, func(t *testing.T) {
			files, err := filepath.Glob(pattern)
			noError(t, err)
			switch {
			case len(files) == 0 && name == "large":
				t.Skipf("the large corpus is not at %s", pattern)
			case len(files) == 0:
				t.Fatalf("no recorded session is at %s", pattern)
			case testing.Short() && name == "large":
				files = slices.DeleteFunc(files, func(file string) bool { return len(file)%9 != 0 })
			}
			testReadLikeADK(t, files)
		})
	}
}

func testReadLikeADK(t *testing.T, files []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.db")
	db := mustOpen(t)(store.Open(path, store.Options{NoSync: true}))
	svc, err := adk.NewService(db, adk.Options{KeepInterruptedCalls: true}) // like ADK's own service, leaves calls open
	noError(t, err)
	want := map[string][]*session.Event{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		noError(t, err)
		sess := create(t, svc, file, nil)
		for line := range bytes.Lines(text) {
			var e session.Event
			d := json.NewDecoder(bytes.NewReader(line))
			d.DisallowUnknownFields()
			noError(t, d.Decode(&e))
			want[file] = append(want[file], &e)
			noError(t, svc.AppendEvent(t.Context(), sess, &e))
		}
		key := store.Key{App: "app", User: "user", Session: "imported " + file}
		noError(t, errOf(db.Import(t.Context(), key, bytes.NewReader(text), store.ImportOptions{Name: file})))
	}
	noError(t, db.Close())
	db = mustOpen(t)(store.Open(path, store.Options{NoSync: true}))
	svc, err = adk.NewService(db, adk.Options{KeepInterruptedCalls: true})
	noError(t, err)
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
