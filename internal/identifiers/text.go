package identifiers

import (
	"encoding/json"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/patch"
)

// Text returns the texts of events, in lines. They include function names, the names and values in the arguments of
// calls and in responses, and error messages. It omits thoughts, call ids, file contents, and nil events.
func Text(events ...*patch.Event) string {
	n := 0
	for _, e := range events {
		if e != nil {
			n += e.EstimatedTokens()
		}
	}
	said := make([]byte, 0, n*patch.RunesPerToken*5/4)
	for _, e := range events {
		if e == nil {
			continue
		}
		for _, part := range e.Parts() {
			said = appendPart(said, part)
		}
		message, _ := e.Field("errorMessage")
		said = appendValues(said, message)
	}
	return string(said)
}

// Values returns the strings, names and numbers of a valid JSON text, one per line.
func Values(text json.RawMessage) string { return string(appendValues(nil, text)) }

func appendPart(said []byte, p patch.Part) []byte {
	switch {
	case p.Thought:
		return said
	case p.Kind == patch.PartText:
		return appendLine(said, p.Text)
	case p.Kind == patch.PartResponse: // without the data of images
		response, _ := p.Response.MarshalJSON()
		return appendValues(appendLine(said, p.Name), response)
	}
	field, _ := p.Value.MarshalJSON()
	if jsonvalue.KindOf(field) != jsonvalue.Object {
		return appendValues(said, field)
	}
	for name, value := range jsonvalue.Members(field) {
		if name != "id" && name != "data" {
			said = appendValues(said, value)
		}
	}
	return said
}

func appendValues(said, value []byte) []byte { return appendNext(said, jsonvalue.NewCursor(value)) }

// appendNext appends the lines of the cursor's next value.
func appendNext(said []byte, c *jsonvalue.Cursor) []byte {
	switch c.Kind() {
	case jsonvalue.String:
		return appendLine(said, jsonvalue.Unquote(c.Value()))
	case jsonvalue.Number:
		return appendLine(said, string(c.Value()))
	case jsonvalue.Array:
		for c.Enter(); c.More(); {
			said = appendNext(said, c)
		}
	case jsonvalue.Object:
		for c.Enter(); c.More(); {
			said = appendLine(said, string(c.Key()))
			said = appendNext(said, c)
		}
	default:
		c.Value()
	}
	return said
}

func appendLine(said []byte, line string) []byte {
	if line == "" {
		return said
	}
	return append(append(said, line...), '\n')
}
