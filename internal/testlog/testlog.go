// Package testlog makes events and logs for tests, and compares results. It imports no package of this module
// except patch, so tests of the core packages can use it. Stores for tests are in internal/teststore.
package testlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchlog-dev/patchlog/patch"
)

// Event parses a line of JSON as an event. If args are given, line is a format for them. It panics if the line
// is not an event.
func Event(line string, args ...any) *patch.Event {
	r := Record(line, args...)
	if r.Event == nil {
		panic(fmt.Sprintf("%.200s is a patch", line))
	}
	return r.Event
}

// Record parses a line of JSON as a record. If args are given, line is a format for them. It panics on failure.
func Record(line string, args ...any) patch.Record {
	if len(args) > 0 {
		line = fmt.Sprintf(line, args...)
	}
	r, err := patch.ParseRecord([]byte(line))
	if err != nil {
		panic(fmt.Sprintf("%.200s: %v", line, err))
	}
	return r
}

// EventOf returns the event with the given JSON fields.
func EventOf(t Failer, fields map[string]any) *patch.Event {
	t.Helper()
	return Must(patch.ParseEvent(Must(json.Marshal(fields))(t)))(t)
}

// FirstText returns the text of an event's first part.
func FirstText(e *patch.Event) string {
	for _, p := range e.Parts() {
		return p.Text
	}
	return ""
}

// New returns an event with the given fields. It panics if the fields are invalid.
func New(f patch.Fields) *patch.Event {
	e, err := patch.NewEvent(f)
	if err != nil {
		panic(err)
	}
	return e
}

// Parts returns an event with the given content parts. Its role is "user" if the author is "user", and
// otherwise "model".
func Parts(id, invocation, author string, parts ...any) *patch.Event {
	return New(patch.Fields{ID: id, InvocationID: invocation, Author: author, Content: map[string]any{"role": role(author), "parts": parts}})
}

func role(author string) string {
	if author == "user" {
		return "user"
	}
	return "model"
}

// Text returns an event with a text.
func Text(id, invocation, author, text string) *patch.Event {
	return New(patch.Fields{ID: id, InvocationID: invocation, Author: author, Content: patch.Text(role(author), text)})
}

// Call returns a part with a function call. An empty id is omitted.
func Call(id, name string, args map[string]any) any {
	return functionPart("functionCall", id, name, "args", args)
}

// Response returns a part with the response of a function. An empty id is omitted.
func Response(id, name string, response map[string]any) any {
	return functionPart("functionResponse", id, name, "response", response)
}

func functionPart(kind, id, name, what string, value map[string]any) any {
	fields := map[string]any{"name": name, what: value}
	if id != "" {
		fields["id"] = id
	}
	return map[string]any{kind: fields}
}

// Summary returns a summary with a role and a text, in the form in which logs contain summaries.
func Summary(role, text string) *patch.Event {
	content := patch.Text(role, text)
	return New(patch.Fields{Author: "user", Content: content, Actions: patch.Actions{Compaction: &patch.EventCompaction{CompactedContent: content}}})
}

// Turns returns n events in turns of four: a question, a call, its response and an answer. The argument from is
// the number of preceding events. The numbers of ids and turns continue from there.
func Turns(from, n int) []*patch.Event {
	events := make([]*patch.Event, n)
	for i := range events {
		turn := (from + i) / 4
		id, invocation, call := fmt.Sprint("e", from+i), fmt.Sprint("inv", turn), fmt.Sprint("call-", turn)
		switch (from + i) % 4 {
		case 0:
			events[i] = Text(id, invocation, "user", "where is my order and when will it come")
		case 1:
			events[i] = Parts(id, invocation, "agent", Call(call, "find_order", map[string]any{"order": turn}))
		case 2:
			response := Response(call, "find_order", map[string]any{"state": "on its way", "day": "Tuesday"})
			events[i] = New(patch.Fields{ID: id, InvocationID: invocation, Author: "agent", Content: map[string]any{"role": "user", "parts": []any{response}}})
		default:
			events[i] = Text(id, invocation, "agent", "it is on its way and comes on Tuesday")
		}
	}
	return events
}

// ScaleDownForRace returns n, or n/16 under the race detector, which slows computation ten to twenty times. Use
// it for input sizes of single-goroutine code.
func ScaleDownForRace(n int) int {
	if Race {
		return n / 16
	}
	return n
}

// Equal fails the test if got differs from want, and prints the difference. It compares unexported fields too.
// Times are compared as instants.
func Equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("%s differs (- wanted, + got):\n%s", what, diff)
	}
}

// Failer is a test, a benchmark or a rapid property.
type Failer interface {
	Helper()
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
}

// Must returns a function that returns v, or ends the test if err is not nil. Use it as Must(f())(t).
func Must[T any](v T, err error) func(Failer) T {
	return func(t Failer) T {
		t.Helper()
		NoError(t, err)
		return v
	}
}

// NoError ends the test if err is not nil.
func NoError(t Failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantNil fails the test if err is not nil, but does not end the test.
func WantNil(t Failer, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// ErrorIs fails the test if err does not match want, but does not end the test. The optional arguments what are
// a format and its arguments, which name the call.
func ErrorIs(t Failer, err, want error, what ...any) {
	t.Helper()
	if errors.Is(err, want) {
		return
	}
	if len(what) > 0 {
		err = fmt.Errorf(what[0].(string)+": %w", append(what[1:], err)...)
	}
	t.Errorf("%v, want %v", err, want)
}

// ErrorOf returns the error of a call with two results.
func ErrorOf[T any](_ T, err error) error { return err }

// SkipUnderRace skips a test under the race detector. The detector is slow and finds nothing in single-goroutine
// code.
func SkipUnderRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("one goroutine: nothing for the race detector to find")
	}
}
