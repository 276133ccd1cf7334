package identifiers

import (
	"encoding/json"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
	"github.com/patchlog-dev/patchlog/patch"
)

// Text returns all that events say, in lines: texts, names, the names and values in the arguments
// of calls and in responses, and messages of errors. Thoughts, ids of calls and the bytes of
// files are left out, and so are nil events.
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
		content, _ := e.Field("content")
		for _, part := range jsontext.Elements(jsontext.Member(content, "parts")) {
			said = appendPart(said, part)
		}
		message, _ := e.Field("errorMessage")
		said = appendValues(said, message)
	}
	return string(said)
}

// Values returns the strings, names and numbers in a valid JSON text, in lines.
func Values(text json.RawMessage) string { return string(appendValues(nil, text)) }

// appendPart appends the lines of a part of a content.
func appendPart(said, part []byte) []byte {
	before := len(said)
	for name, field := range jsontext.Members(part) {
		switch name {
		case "thought":
			if string(field) == "true" {
				return said[:before]
			}
			continue
		case "thoughtSignature", "videoMetadata", "mediaResolution", "mediaProcessing", "speechMetadata", "partMetadata":
			continue
		}
		if jsontext.KindOf(field) != jsontext.Object {
			said = appendValues(said, field)
			continue
		}
		for name, value := range jsontext.Members(field) {
			if name != "id" && name != "data" {
				said = appendValues(said, value)
			}
		}
	}
	return said
}

// appendValues appends the lines of a JSON value.
func appendValues(said, value []byte) []byte { return appendNext(said, jsontext.NewCursor(value)) }

// appendNext appends the lines of the value that comes next.
func appendNext(said []byte, c *jsontext.Cursor) []byte {
	switch c.Kind() {
	case jsontext.String:
		return appendLine(said, jsontext.Unquote(c.Value()))
	case jsontext.Number:
		return appendLine(said, string(c.Value()))
	case jsontext.Array:
		for c.Enter(); c.More(); {
			said = appendNext(said, c)
		}
	case jsontext.Object:
		for c.Enter(); c.More(); {
			said = appendLine(said, c.Key())
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
