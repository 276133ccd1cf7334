package adkjson

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	err := r.value(eventType)
	return r.out, err
}

var eventType = reflect.TypeFor[eventSchema]()

// respeller copies one JSON value.
type respeller struct {
	in   *jsonvalue.Cursor
	out  []byte
	path []string
}

// value copies the next value, which should be of the type.
func (r *respeller) value(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch kind := r.in.Kind(); {
	case kind == jsonvalue.Object && t.Kind() == reflect.Struct:
		return r.fields(t)
	case kind == jsonvalue.Array && t.Kind() == reflect.Slice:
		return r.array(t.Elem())
	case kind == jsonvalue.String && t.Kind() == reflect.Slice && t.ConvertibleTo(bytesSliceType):
		r.out = append(r.out, standardBase64(r.in.Value())...)
	default:
		r.out = append(r.out, r.in.Value()...)
	}
	return nil
}

// fields copies an object with the fields of a struct.
func (r *respeller) fields(t reflect.Type) error {
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
		name, t := fieldOf(t, came)
		switch {
		case t == nil: // not known
			t = datumType
		case slices.Contains(seen, name):
			return fieldErr(r.pointer(came), "%s is there in two spellings", name)
		default:
			seen = append(seen, name)
		}
		if name != came {
			quoted = jsonvalue.AppendQuote(nil, name)
		}
		r.out = append(append(r.out, quoted...), ':')
		if err := r.within(came, t); err != nil {
			return err
		}
	}
	r.out = append(r.out, '}')
	return nil
}

// within copies the next value, which is at the step.
func (r *respeller) within(step string, t reflect.Type) error {
	r.path = append(r.path, step)
	err := r.value(t)
	r.path = r.path[:len(r.path)-1]
	return err
}

func (r *respeller) array(t reflect.Type) error {
	r.out = append(r.out, '[')
	r.in.Enter()
	for i := 0; r.in.More(); i++ {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		if err := r.within(strconv.Itoa(i), t); err != nil {
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

var (
	datumType      = reflect.TypeFor[datum]()
	bytesSliceType = reflect.TypeFor[[]byte]()
)

// schemaField is a field of a struct as JSON names it.
type schemaField struct {
	name string
	t    reflect.Type
}

var schemaFields sync.Map // reflect.Type → map[string]schemaField, by either spelling

// fieldOf returns the name and the type of a struct's field that is spelled so, or nil.
func fieldOf(t reflect.Type, spelled string) (name string, _ reflect.Type) {
	known, ok := schemaFields.Load(t)
	if !ok {
		fields := map[string]schemaField{}
		for i := range t.NumField() {
			field := schemaField{t.Field(i).Tag.Get("json"), t.Field(i).Type}
			fields[field.name], fields[pythonName(field.name)] = field, field
		}
		known, _ = schemaFields.LoadOrStore(t, fields)
	}
	if f, ok := known.(map[string]schemaField)[spelled]; ok {
		return f.name, f.t
	}
	return spelled, nil
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
