package identifiers

import (
	"encoding/json"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/patch"
)

// Text returns the texts of events, one or more lines per event. They include function names, the names and values in
// the arguments of calls and in responses, and error messages. Thoughts, call ids, file contents and nil events are
// omitted.
func Text(events ...*patch.Event) string {
	n := 0
	for _, e := range events {
		if e != nil {
			n += e.EstimatedTokens()
		}
	}
	text := make([]byte, 0, n*patch.RunesPerToken*5/4)
	for _, e := range events {
		if e == nil {
			continue
		}
		for _, part := range e.Parts() {
			text = appendPart(text, part)
		}
		message, _ := e.Field("errorMessage")
		text = appendValues(text, message)
	}
	return string(text)
}

// Values returns the strings, names and numbers of a valid JSON text, one per line.
func Values(text json.RawMessage) string { return string(appendValues(nil, text)) }

func appendPart(dst []byte, p patch.Part) []byte {
	switch {
	case p.Thought:
		return dst
	case p.Kind == patch.PartText:
		return appendLine(dst, p.Text)
	case p.Kind == patch.PartResponse: // does not include the data of images
		response, _ := p.Response.MarshalJSON()
		return appendValues(appendLine(dst, p.Name), response)
	}
	field, _ := p.Value.MarshalJSON()
	if jsonvalue.KindOf(field) != jsonvalue.Object {
		return appendValues(dst, field)
	}
	for name, value := range jsonvalue.Members(field) {
		if name != "id" && name != "data" {
			dst = appendValues(dst, value)
		}
	}
	return dst
}

func appendValues(dst, value []byte) []byte { return appendJSON(dst, jsonvalue.NewCursor(value)) }

// appendJSON appends the lines of the cursor's next JSON value.
func appendJSON(dst []byte, c *jsonvalue.Cursor) []byte {
	switch c.Kind() {
	case jsonvalue.String:
		return appendLine(dst, jsonvalue.Unquote(c.Value()))
	case jsonvalue.Number:
		return appendLine(dst, string(c.Value()))
	case jsonvalue.Array:
		for c.Enter(); c.More(); {
			dst = appendJSON(dst, c)
		}
	case jsonvalue.Object:
		for c.Enter(); c.More(); {
			dst = appendLine(dst, string(c.Key()))
			dst = appendJSON(dst, c)
		}
	default:
		c.Value()
	}
	return dst
}

func appendLine(dst []byte, line string) []byte {
	if line == "" {
		return dst
	}
	return append(append(dst, line...), '\n')
}
