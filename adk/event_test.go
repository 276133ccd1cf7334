package adk_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
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
	_, err := adk.NewEvent(nil)
	fails(t, err, patch.ErrInvalid)
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
