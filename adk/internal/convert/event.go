// Package convert converts between ADK's events and events of the log.
package convert

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// Event converts an event of ADK to one of the log, as adk.NewEvent says. mended reports whether a text in e is not
// UTF-8.
func Event(e *session.Event) (p *patch.Event, mended bool, err error) {
	if e == nil {
		return nil, false, fmt.Errorf("%w: the event is nil", patch.ErrInvalid)
	}
	if p, err = patch.NewEvent(eventFields(e)); err == nil {
		return p, false, nil
	}
	// A value in it may come back changed, such as the function call inside a request for confirmation, or a text that
	// is not UTF-8.
	plain, mended := Plain(*e)
	p, err = patch.NewEvent(eventFields(&plain))
	return p, mended, err
}

// SessionEvent converts an event of the log to one of ADK, as adk.SessionEvent says.
func SessionEvent(p *patch.Event) (*session.Event, error) {
	if p == nil {
		return nil, fmt.Errorf("%w: the event is nil", patch.ErrInvalid)
	}
	e := &session.Event{
		ID: p.ID(), InvocationID: p.InvocationID(), Author: p.Author(),
		Branch: p.Branch(), IsolationScope: p.IsolationScope(), Timestamp: p.Timestamp(),
	}
	e.Partial = p.Partial()
	var errs []error
	for name, value := range p.Fields() {
		index, known := decodedFields[name]
		if !known {
			continue
		}
		field := reflect.ValueOf(e).Elem().FieldByIndex(index)
		if value.Decode(field.Addr().Interface()) != nil {
			field.SetZero()
			errs = append(errs, p.Decode(name, reflect.New(field.Type()).Interface())) // its error names the field
		}
	}
	if len(errs) > 0 {
		return e, fmt.Errorf("event %q: %w", p.ID(), errors.Join(errs...))
	}
	return e, nil
}

// eventFields returns the fields of an ADK event that the log knows.
func eventFields(e *session.Event) patch.Fields {
	f := patch.Fields{
		ID: e.ID, InvocationID: e.InvocationID, Author: e.Author,
		Branch: e.Branch, IsolationScope: e.IsolationScope,
		Timestamp: e.Timestamp, ZeroTime: e.Timestamp.IsZero(),
		Content: jsonOf(e.Content), Partial: e.Partial,
		Actions: patch.Actions{
			StateDelta: e.Actions.StateDelta, ArtifactDelta: e.Actions.ArtifactDelta,
			SkipSummarization: e.Actions.SkipSummarization,
			TransferToAgent:   e.Actions.TransferToAgent, Escalate: e.Actions.Escalate,
		},
		LongRunningToolIDs: e.LongRunningToolIDs,
		UsageMetadata:      jsonOf(e.UsageMetadata), CustomMetadata: e.CustomMetadata,
	}
	for _, x := range fieldsOf(&e.Actions, moreActions) {
		f.Actions.Extra = x.addTo(f.Actions.Extra)
	}
	for _, x := range extraFields(e) {
		f.Extra = x.addTo(f.Extra)
	}
	return f
}

// field is a field of an event under its JSON name.
type field struct {
	name    string
	pointer any
}

// addTo adds a nonzero field to extra.
func (f field) addTo(extra map[string]any) map[string]any {
	if reflect.ValueOf(f.pointer).Elem().IsZero() {
		return extra
	}
	if extra == nil {
		extra = map[string]any{}
	}
	extra[f.name] = jsonOf(f.pointer)
	return extra
}

// extraFields returns the fields that the log keeps without knowing their meaning: all fields of ADK's type except
// those in [eventFields]. So no field of a newer ADK is lost.
func extraFields(e *session.Event) []field {
	return append(fieldsOf(e, moreOfEvent), fieldsOf(&e.LLMResponse, moreOfResponse)...)
}

var (
	moreOfEvent = moreFields(reflect.TypeFor[session.Event](),
		"id", "timestamp", "invocationId", "branch", "isolationScope", "author", "actions", "longRunningToolIds")
	moreOfResponse = moreFields(reflect.TypeFor[model.LLMResponse](),
		"content", "usageMetadata", "customMetadata", "partial")
	moreActions = moreFields(reflect.TypeFor[session.EventActions](),
		"stateDelta", "artifactDelta", "skipSummarization", "transferToAgent", "escalate")
)

// decodedFields has the index of each field of ADK's events, by its JSON name.
var decodedFields = func() map[string][]int {
	all := map[string][]int{}
	for _, f := range structOf(reflect.TypeFor[session.Event]()).fields {
		all[f.name] = f.index
	}
	return all
}()

// moreFields returns the JSON fields of a struct, without those of embedded structs and without those named in but.
func moreFields(t reflect.Type, but ...string) (fields []jsonField) {
	for _, f := range structOf(t).fields {
		if len(f.index) == 1 && !slices.Contains(but, f.name) {
			fields = append(fields, f)
		}
	}
	return fields
}

// fieldsOf returns fields of the struct that a pointer points to.
func fieldsOf(pointer any, fields []jsonField) []field {
	v := reflect.ValueOf(pointer).Elem()
	out := make([]field, len(fields))
	for i, f := range fields {
		out[i] = field{f.name, v.FieldByIndex(f.index).Addr().Interface()}
	}
	return out
}
