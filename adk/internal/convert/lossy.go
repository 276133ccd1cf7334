package convert

import (
	"fmt"
	"reflect"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// LossyEvent converts an ADK event that contains values without a JSON encoding. It keeps the ids, the author, the
// branch, the time, the content and the actions. Text replaces the values that JSON cannot encode.
func LossyEvent(e *session.Event) *patch.Event {
	c := session.Event{
		ID: e.ID, InvocationID: e.InvocationID, Author: e.Author, Branch: e.Branch, IsolationScope: e.IsolationScope,
		Timestamp: e.Timestamp, Actions: e.Actions, LongRunningToolIDs: e.LongRunningToolIDs,
		LLMResponse: model.LLMResponse{Content: e.Content},
	}
	textCopier.deepCopy(reflect.ValueOf(&c).Elem(), 0)
	p, _, err := Event(&c)
	if err != nil {
		p, _ = patch.NewEvent(patch.Fields{ID: e.ID, ZeroTime: true}) // JSON can encode an event with only an id
	}
	return p
}

// textCopier makes copies that JSON can encode.
var textCopier = copier{replaceAny: textValue}

// textValue is the replaceAny function of textCopier. It returns v if JSON can encode v, and otherwise the value of v's
// JSON, or text.
func textValue(_ copier, v any, depth int) (any, bool) {
	plain, ok := plainValue(copier{replaceAny: plainValue}, v, depth)
	if !ok {
		return fmt.Sprintf("%T", v), true // v contains itself
	}
	if _, err := patch.NewValue(plain); err == nil || reflect.ValueOf(plain).Kind() == reflect.String {
		return plain, true
	}
	return fmt.Sprint(plain), true
}

// LossyValue converts a value of a base's state. If JSON cannot encode v, the result contains text instead.
func LossyValue(v any) patch.Value {
	value, err := patch.NewValue(v)
	if err != nil {
		textCopier.deepCopy(reflect.ValueOf(&v).Elem(), 0)
		value, _ = patch.NewValue(v)
	}
	return value
}
