// Package convert converts between ADK events and events of the log.
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

// Event implements adk.NewEvent. The result repaired reports whether a string in e was not valid UTF-8.
func Event(e *session.Event) (p *patch.Event, repaired bool, err error) {
	if e == nil {
		return nil, false, fmt.Errorf("%w: the event is nil", patch.ErrInvalid)
	}
	if p, err = patch.NewEvent(eventFields(e)); err == nil {
		return p, false, nil
	}
	// The log cannot keep some value of e exactly, for example a string that is not UTF-8. So convert a copy of
	// e in which such values are replaced.
	plain, repaired := Plain(*e)
	p, err = patch.NewEvent(eventFields(&plain))
	return p, repaired, err
}

// SessionEvent implements adk.SessionEvent.
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
			errs = append(errs, p.Decode(name, reflect.New(field.Type()).Interface())) // the error of p.Decode contains the name of the field
		}
	}
	if len(errs) > 0 {
		return e, fmt.Errorf("event %q: %w", p.ID(), errors.Join(errs...))
	}
	return e, nil
}

// eventFields returns the fields of an ADK event in the form that package patch accepts.
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
	for _, x := range fieldsOf(&e.Actions, otherActionFields) {
		f.Actions.Extra = x.addTo(f.Actions.Extra)
	}
	for _, x := range extraFields(e) {
		f.Extra = x.addTo(f.Extra)
	}
	return f
}

type field struct {
	name    string
	pointer any
}

// addTo adds the field to extra, unless the field is zero.
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

// extraFields returns the fields that the log stores without interpreting them. These are all fields of ADK's types
// except those that [eventFields] sets by name. Therefore the log also keeps the fields that newer ADK versions
// add.
func extraFields(e *session.Event) []field {
	return append(fieldsOf(e, otherEventFields), fieldsOf(&e.LLMResponse, otherResponseFields)...)
}

var (
	otherEventFields = jsonFieldsExcept(reflect.TypeFor[session.Event](),
		"id", "timestamp", "invocationId", "branch", "isolationScope", "author", "actions", "longRunningToolIds")
	otherResponseFields = jsonFieldsExcept(reflect.TypeFor[model.LLMResponse](),
		"content", "usageMetadata", "customMetadata", "partial")
	otherActionFields = jsonFieldsExcept(reflect.TypeFor[session.EventActions](),
		"stateDelta", "artifactDelta", "skipSummarization", "transferToAgent", "escalate")
)

// decodedFields maps the JSON names of the fields of ADK's event to their indices.
var decodedFields = func() map[string][]int {
	all := map[string][]int{}
	for _, f := range structOf(reflect.TypeFor[session.Event]()).fields {
		all[f.name] = f.index
	}
	return all
}()

// jsonFieldsExcept returns the JSON fields of a struct. It leaves out the fields of embedded structs and the fields
// named in except.
func jsonFieldsExcept(t reflect.Type, except ...string) (fields []jsonField) {
	for _, f := range structOf(t).fields {
		if len(f.index) == 1 && !slices.Contains(except, f.name) {
			fields = append(fields, f)
		}
	}
	return fields
}

// fieldsOf returns the given fields of the struct to which pointer points.
func fieldsOf(pointer any, fields []jsonField) []field {
	v := reflect.ValueOf(pointer).Elem()
	out := make([]field, len(fields))
	for i, f := range fields {
		out[i] = field{f.name, v.FieldByIndex(f.index).Addr().Interface()}
	}
	return out
}
