package convert

import (
	"fmt"
	"reflect"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// LossyEvent converts an ADK event in which some values have no JSON encoding. It keeps only the ids, the author,
// the branch, the time, the content and the actions. Text replaces the values that JSON cannot encode.
func LossyEvent(e *session.Event) *patch.Event {
	c := session.Event{
		ID: e.ID, InvocationID: e.InvocationID, Author: e.Author, Branch: e.Branch, IsolationScope: e.IsolationScope,
		Timestamp: e.Timestamp, Actions: e.Actions, LongRunningToolIDs: e.LongRunningToolIDs,
		LLMResponse: model.LLMResponse{Content: e.Content},
	}
	textCopier.deepCopy(reflect.ValueOf(&c).Elem(), 0)
	p, _, err := Event(&c)
	if err != nil {
		p, _ = patch.NewEvent(patch.Fields{ID: e.ID, ZeroTime: true}) // an event with only an id always has a JSON encoding
	}
	return p
}

// textCopier replaces values that JSON cannot encode by text.
var textCopier = copier{replaceAny: textValue}

// textValue is the replaceAny function of textCopier. If JSON can encode v, textValue returns v. Otherwise it returns
// the value of v's JSON, or text.
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

// LossyValue converts a value in the state of a base's session. If JSON cannot encode v, the result contains
// text instead.
func LossyValue(v any) patch.Value {
	value, err := patch.NewValue(v)
	if err != nil {
		textCopier.deepCopy(reflect.ValueOf(&v).Elem(), 0)
		value, _ = patch.NewValue(v)
	}
	return value
}
