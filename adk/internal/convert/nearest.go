package convert

import (
	"fmt"
	"reflect"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// Nearest converts an event of ADK that JSON cannot carry. It keeps the identity, the content and the actions; text
// replaces values without JSON.
func Nearest(e *session.Event) *patch.Event {
	c := session.Event{
		ID: e.ID, InvocationID: e.InvocationID, Author: e.Author, Branch: e.Branch, IsolationScope: e.IsolationScope,
		Timestamp: e.Timestamp, Actions: e.Actions, LongRunningToolIDs: e.LongRunningToolIDs,
		LLMResponse: model.LLMResponse{Content: e.Content},
	}
	textCopier.own(reflect.ValueOf(&c).Elem(), 0)
	p, _, err := Event(&c)
	if err != nil {
		p, _ = patch.NewEvent(patch.Fields{ID: e.ID, ZeroTime: true}) // JSON can carry this id
	}
	return p
}

// textCopier copies values so that JSON can carry them.
var textCopier = copier{dynamic: textValue}

// textValue returns a value that JSON can carry: v itself, what its JSON says, or its text.
// It is a copier's dynamic.
func textValue(_ copier, v any, depth int) (any, bool) {
	plain, ok := plainValue(copier{dynamic: plainValue}, v, depth)
	if !ok {
		return fmt.Sprintf("%T", v), true // it contains itself
	}
	if _, err := patch.NewValue(plain); err == nil || reflect.ValueOf(plain).Kind() == reflect.String {
		return plain, true
	}
	return fmt.Sprint(plain), true
}

// Value converts a value of a base's state. If JSON cannot carry it, the result is its text.
func Value(v any) patch.Value {
	value, err := patch.NewValue(v)
	if err != nil {
		textCopier.own(reflect.ValueOf(&v).Elem(), 0)
		value, _ = patch.NewValue(v)
	}
	return value
}
