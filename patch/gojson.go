package patch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// goWriter writes Go values as JSON that brings them back deep-equal: floats are written with a
// point or an exponent, and the Go types that JSON does not bring back are noted. What cannot come
// back in an `any` (structs, errors, keys that are not strings, NaN, text that is not UTF-8) is
// refused, naming the field.
type goWriter struct {
	buf   []byte
	types []goType
	path  []string
	depth int
}

func (w *goWriter) fail(format string, args ...any) error {
	return fieldErr(strings.TrimPrefix(w.pointer(), "/"), format, args...)
}

func (w *goWriter) pointer() string {
	var b strings.Builder
	for _, step := range w.path {
		b.WriteByte('/')
		b.WriteString(jsontext.EscapeStep(step))
	}
	return b.String()
}

// within runs write one step deeper.
func (w *goWriter) within(step string, write func() error) error {
	w.path = append(w.path, step)
	err := write()
	w.path = w.path[:len(w.path)-1]
	return err
}

func (w *goWriter) raw(s string) { w.buf = append(w.buf, s...) }

func (w *goWriter) str(s string) error {
	if !utf8.ValidString(s) {
		return notUTF8(strings.TrimPrefix(w.pointer(), "/"), s)
	}
	w.buf = jsontext.AppendQuote(w.buf, s)
	return nil
}

// member writes the n-th member of an object.
func (w *goWriter) member(n int, name string, write func() error) error {
	return w.within(name, func() error {
		if n > 0 {
			w.raw(",")
		}
		if err := w.str(name); err != nil {
			return err
		}
		w.raw(":")
		return write()
	})
}

// unnoted is a value whose reader knows its Go type.
type unnoted struct{ value any }

// orderedField is a field of an object that is written in the order given.
type orderedField struct {
	name  string
	value any
}

// jsonOf returns the JSON of a value that is made of an event or a patch, however deeply it nests.
func jsonOf(v any) []byte {
	w := goWriter{depth: -jsontext.MaxDepth}
	if err := w.field(v); err != nil {
		panic("patch: " + err.Error())
	}
	return w.buf
}

// field writes the value of a named field: any value that comes back from an `any`, and of others
// what encoding/json writes.
func (w *goWriter) field(v any) error {
	switch v := v.(type) {
	case nil, Value, []orderedField, map[string]Value:
		return w.any(v)
	case unnoted:
		return w.typed(reflect.ValueOf(v.value))
	}
	if _, ok := typeName(reflect.TypeOf(v)); ok {
		return w.any(v)
	}
	var b bytes.Buffer
	if raw, ok := v.(json.RawMessage); ok {
		b.Write(raw)
	} else {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			if at := (*FieldError)(nil); errors.As(err, &at) {
				return at.within(w.pointer())
			}
			return w.fail("%s", clip(err.Error()))
		}
	}
	if err := jsontext.Check(b.Bytes()); err != nil {
		return w.fail("%T wrote %v", v, err)
	}
	return w.value(Value{text: jsontext.Compact(b.Bytes())})
}

// value writes a value with the types that are noted in it.
func (w *goWriter) value(v Value) error {
	if fault := v.fault(); fault != nil {
		return fault.within(w.pointer())
	}
	if w.depth+jsontext.Depth(v.json()) > maxValueDepth {
		return w.fail("nested deeper than %d", maxValueDepth)
	}
	w.buf = append(w.buf, v.json()...)
	if len(v.types.types) > 0 {
		at := w.pointer()
		for _, t := range v.types.types {
			w.types = append(w.types, goType{at + t.pointer[v.types.skip:], t.name})
		}
	}
	return nil
}

// any writes the dynamic value of an `any`.
func (w *goWriter) any(v any) error {
	switch v := v.(type) {
	case nil:
		w.raw("null")
		return nil
	case bool, string, float64:
		return w.typed(reflect.ValueOf(v))
	case Value:
		return w.value(v)
	case map[string]Value:
		fields := []orderedField{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			fields = append(fields, orderedField{key, v[key]})
		}
		return w.any(fields)
	case []orderedField:
		w.depth++
		defer func() { w.depth-- }()
		w.raw("{")
		for i, f := range v {
			if err := w.member(i, f.name, func() error { return w.field(f.value) }); err != nil {
				return err
			}
		}
		w.raw("}")
		return nil
	case []any, map[string]any:
		if rv := reflect.ValueOf(v); !rv.IsNil() {
			return w.typed(rv)
		}
	}
	rv := reflect.ValueOf(v)
	name, ok := typeName(rv.Type())
	if !ok {
		return w.fail("a value of Go type %s does not come back from storage as it is; "+
			"use booleans, numbers, strings, slices and maps with string keys", rv.Type())
	}
	w.types = append(w.types, goType{pointer: w.pointer(), name: name})
	return w.typed(rv)
}

// maxValueDepth is how deeply a value may nest, so that as part of an event, and that
// in the replacement of a patch, its line is still one that [ParseRecord] takes.
// Events as a whole may be nested one deeper.
const maxValueDepth = jsontext.MaxDepth - 3

// typed writes a value of a type that has a name, see typeName.
func (w *goWriter) typed(v reflect.Value) error {
	switch t := v.Type(); {
	case t == numberType:
		if !jsontext.IsNumber(v.String()) {
			return w.fail("json.Number %q is not a number", clip(v.String()))
		}
		w.raw(v.String())
	case t == timeType:
		text, err := v.Interface().(time.Time).Round(0).UTC().MarshalJSON()
		if err != nil {
			return w.fail("%v", err)
		}
		w.buf = append(w.buf, text...)
	case t.Kind() == reflect.Interface && !v.IsNil():
		return w.any(v.Elem().Interface())
	case (t.Kind() == reflect.Interface || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) && v.IsNil():
		w.raw("null")
	case t == bytesType:
		w.raw(`"`)
		w.buf = append(base64.StdEncoding.AppendEncode(w.buf, v.Bytes()), '"')
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
		if w.depth++; w.depth > maxValueDepth {
			return w.fail("nested deeper than %d; is there a cycle?", maxValueDepth)
		}
		defer func() { w.depth-- }()
		if t.Kind() == reflect.Slice {
			return w.list(v)
		}
		return w.object(v)
	case v.Kind() == reflect.String:
		return w.str(v.String())
	case v.Kind() == reflect.Bool:
		w.buf = strconv.AppendBool(w.buf, v.Bool())
	case v.CanInt():
		w.buf = strconv.AppendInt(w.buf, v.Int(), 10)
	case v.CanUint():
		w.buf = strconv.AppendUint(w.buf, v.Uint(), 10)
	default:
		return w.float(v.Float(), t.Bits())
	}
	return nil
}

func (w *goWriter) object(v reflect.Value) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	w.raw("{")
	for i, k := range keys {
		if err := w.member(i, k.String(), func() error { return w.typed(v.MapIndex(k)) }); err != nil {
			return err
		}
	}
	w.raw("}")
	return nil
}

func (w *goWriter) list(v reflect.Value) error {
	w.raw("[")
	for i := range v.Len() {
		if i > 0 {
			w.raw(",")
		}
		if err := w.within(strconv.Itoa(i), func() error { return w.typed(v.Index(i)) }); err != nil {
			return err
		}
	}
	w.raw("]")
	return nil
}

// float writes f so that its kind is seen, and back to the same bits.
func (w *goWriter) float(f float64, bits int) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return w.fail("JSON cannot carry the number %v", f)
	}
	// Exponents stand where encoding/json has them.
	format, whole := byte('f'), f == math.Trunc(f)
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format, whole = 'e', false
	}
	w.buf = strconv.AppendFloat(w.buf, f, format, -1, bits)
	if whole {
		w.raw(".0")
	}
	return nil
}
