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
// unchanged. The argument path is the path to the value, for error messages.
func respell(text []byte, s *schema, path ...string) ([]byte, error) {
	switch kind := jsonvalue.KindOf(text); {
	case kind == jsonvalue.Object && s != nil && s.fields != nil:
		return respellFields(text, s, path)
	case kind == jsonvalue.Array && s != nil && s.element != nil:
		out := append(make([]byte, 0, len(text)), '[')
		for i, v := range jsonvalue.Elements(text) {
			translated, err := respell(v, s.element, append(path, strconv.Itoa(i))...)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, translated...)
		}
		return append(out, ']'), nil
	case kind == jsonvalue.String && s == base64Text:
		return standardBase64(text), nil
	}
	return text, nil
}

func respellFields(text []byte, s *schema, path []string) ([]byte, error) {
	out := append(make([]byte, 0, len(text)), '{')
	var seen []string
	for original, v := range jsonvalue.Members(text) {
		fieldPath := append(path, jsonvalue.Step(original))
		field, inSchema := s.fields[original]
		switch {
		case !inSchema:
			field.name = original
		case slices.Contains(seen, field.name):
			return nil, fieldErr(strings.Join(fieldPath, "/"), "%s occurs in two spellings", field.name)
		default:
			seen = append(seen, field.name)
		}
		translated, err := respell(v, field.schema, fieldPath...)
		if err != nil {
			return nil, err
		}
		out = append(jsonvalue.AppendKey(out, field.name), translated...)
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

// standardBase64 converts a JSON string with URL-safe base64 to standard base64. It returns any other text
// unchanged.
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
