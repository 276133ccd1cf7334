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

// respell returns an event's checked, compact JSON with the names of ADK's and genai's
// fields as ADK's JSON has them. ADK for Python stores them as Python spells them
// (invocation_id, function_call), and bytes in base64's alphabet for URLs. Names are
// translated where the schema has a field, and nowhere else: keys of arguments, responses,
// state and metadata are data. What the schema does not know stays as it came.
func respell(text []byte) ([]byte, error) {
	r := respeller{in: jsonvalue.NewCursor(text), out: make([]byte, 0, len(text))}
	err := r.value(eventSchema())
	return r.out, err
}

// respeller copies one JSON value.
type respeller struct {
	in   *jsonvalue.Cursor
	out  []byte
	path []string
}

// value copies the next value, which should be of the schema.
func (r *respeller) value(of *schema) error {
	switch kind := r.in.Kind(); {
	case kind == jsonvalue.Object && of != nil && of.fields != nil:
		return r.fields(of)
	case kind == jsonvalue.Array && of != nil && of.each != nil:
		return r.array(of.each)
	case kind == jsonvalue.String && of == base64Text:
		r.out = append(r.out, standardBase64(r.in.Value())...)
	default:
		r.out = append(r.out, r.in.Value()...)
	}
	return nil
}

// fields copies an object.
func (r *respeller) fields(of *schema) error {
	r.in.Enter()
	r.out = append(r.out, '{')
	var seen []string
	for first := true; r.in.More(); first = false {
		if !first {
			r.out = append(r.out, ',')
		}
		quoted := r.in.Value()
		r.in.More() // the colon
		came := jsonvalue.Unquote(quoted)
		field, known := of.fields[came]
		switch {
		case !known:
			field.name = came
		case slices.Contains(seen, field.name):
			return fieldErr(r.pointer(came), "%s is there in two spellings", field.name)
		default:
			seen = append(seen, field.name)
		}
		if field.name != came {
			quoted = jsonvalue.AppendQuote(nil, field.name)
		}
		r.out = append(append(r.out, quoted...), ':')
		if err := r.within(came, field.in); err != nil {
			return err
		}
	}
	r.out = append(r.out, '}')
	return nil
}

// within copies the next value, which is at the step.
func (r *respeller) within(step string, of *schema) error {
	r.path = append(r.path, step)
	err := r.value(of)
	r.path = r.path[:len(r.path)-1]
	return err
}

func (r *respeller) array(of *schema) error {
	r.out = append(r.out, '[')
	r.in.Enter()
	for i := 0; r.in.More(); i++ {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		if err := r.within(strconv.Itoa(i), of); err != nil {
			return err
		}
	}
	r.out = append(r.out, ']')
	return nil
}

// pointer says where a member is, or the value itself.
func (r *respeller) pointer(to ...string) string {
	var b strings.Builder
	for i, step := range append(slices.Clip(r.path), to...) {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(jsonvalue.Step(step))
	}
	return b.String()
}

// pythonName spells a name of JSON as Python would.
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

// standardBase64 returns a JSON string of base64 in the standard alphabet. Text that is
// not base64 is returned as it is.
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
