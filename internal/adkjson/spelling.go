package adkjson

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// respell returns the compact JSON of an event with the field names and the base64 alphabet of ADK's JSON. ADK for
// Python stores other names (invocation_id, function_call) and URL-safe base64. Names are translated only where the
// schema has the field, because the keys of arguments, responses, state and metadata are data. Unknown fields stay
// unchanged. The argument path locates the value for error messages.
func respell(text []byte, of *schema, path ...string) ([]byte, error) {
	switch kind := jsonvalue.KindOf(text); {
	case kind == jsonvalue.Object && of != nil && of.fields != nil:
		return respellFields(text, of, path)
	case kind == jsonvalue.Array && of != nil && of.each != nil:
		out := append(make([]byte, 0, len(text)), '[')
		for i, v := range jsonvalue.Elements(text) {
			own, err := respell(v, of.each, append(path, strconv.Itoa(i))...)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, own...)
		}
		return append(out, ']'), nil
	case kind == jsonvalue.String && of == base64Text:
		return standardBase64(text), nil
	}
	return text, nil
}

func respellFields(text []byte, of *schema, path []string) ([]byte, error) {
	out := append(make([]byte, 0, len(text)), '{')
	var seen []string
	for came, v := range jsonvalue.Members(text) {
		at := append(path, jsonvalue.Step(came))
		field, known := of.fields[came]
		switch {
		case !known:
			field.name = came
		case slices.Contains(seen, field.name):
			return nil, fieldErr(strings.Join(at, "/"), "%s occurs in two spellings", field.name)
		default:
			seen = append(seen, field.name)
		}
		own, err := respell(v, field.in, at...)
		if err != nil {
			return nil, err
		}
		out = append(jsonvalue.AppendKey(out, field.name), own...)
	}
	return append(out, '}'), nil
}

// pythonName returns the snake_case form of a JSON name.
func pythonName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// standardBase64 converts a JSON string with URL-safe base64 to standard base64. It returns other text unchanged.
func standardBase64(quoted []byte) []byte {
	if !bytes.ContainsAny(quoted, "-_") {
		return quoted
	}
	data, err := base64.URLEncoding.DecodeString(jsonvalue.Unquote(quoted))
	if err != nil {
		return quoted
	}
	return jsonvalue.AppendQuote(nil, base64.StdEncoding.EncodeToString(data))
}
