package patch

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// goWriter writes Go values as JSON that brings them back deep-equal. It differs
// from encoding/json where that loses something:
//
//   - a field tagged omitempty is left out only if it is its type's zero value, so an
//     empty map and a nil one stay apart;
//   - a float is written with a point or an exponent, so that its kind is seen;
//   - durations and dates in types of Google's SDK keep all they say;
//   - the Go types of values in an `any` that JSON does not bring back are noted;
//   - what cannot come back (structs and errors in an `any`, keys that are not
//     strings, NaN, text that is not UTF-8) is refused, naming the field.
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

// top writes the value of a named field, whose reader knows its Go type.
func (w *goWriter) top(v any) error {
	switch v := v.(type) {
	case nil:
		w.raw("null")
		return nil
	case []orderedField:
		w.depth++
		defer func() { w.depth-- }()
		w.raw("{")
		for i, f := range v {
			if i > 0 {
				w.raw(",")
			}
			if err := w.within(f.name, func() error {
				if err := w.str(f.name); err != nil {
					return err
				}
				w.raw(":")
				return w.top(f.value)
			}); err != nil {
				return err
			}
		}
		w.raw("}")
		return nil
	}
	return w.typed(reflect.ValueOf(v))
}

// any writes the dynamic value of an `any`.
func (w *goWriter) any(v any) error {
	switch v := v.(type) {
	case nil:
		w.raw("null")
		return nil
	case bool:
		w.buf = strconv.AppendBool(w.buf, v)
		return nil
	case string:
		return w.str(v)
	case float64:
		return w.float(v, 64)
	case time.Time:
		w.types = append(w.types, goType{pointer: w.pointer(), name: "time"})
		return w.typed(reflect.ValueOf(v.Round(0).UTC()))
	case []any:
		if v != nil {
			return w.typed(reflect.ValueOf(v))
		}
	case map[string]any:
		if v != nil {
			return w.typed(reflect.ValueOf(v))
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

var (
	durationType   = reflect.TypeFor[time.Duration]()
	dateType       = reflect.TypeFor[date]()
	int64sType     = reflect.TypeFor[[]int64]()
	numberType     = reflect.TypeFor[json.Number]()
	textMarshaler  = reflect.TypeFor[encoding.TextMarshaler]()
	marshalerType  = reflect.TypeFor[json.Marshaler]()
	bytesSliceType = reflect.TypeFor[[]byte]()
	contentType    = reflect.TypeFor[Content]()
)

// genaiPath is Google's SDK, whose types are written by a rule of their own. Those with
// methods for JSON write durations without fractions of a second and leave out what is
// empty, but read all of it: durations as in "1.5s", dates as objects, integers in lists as
// strings. So they are written field by field, as they read. The rule goes by the name
// of the package, since it must hold for programs that hand such types in, and the SDK
// must not come with this package into programs that do not.
const genaiPath = "google.golang.org/genai"

// isGenaiContent reports whether v is a *genai.Content.
func isGenaiContent(v any) bool {
	t := reflect.TypeOf(v)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == genaiPath && t.Elem().Name() == "Content"
}

// date is the underlying type of a date in such a type.
type date struct {
	Year  int
	Month time.Month
	Day   int
}

func isMarshaler(t reflect.Type) bool {
	p := reflect.PointerTo(t) // has the methods of t too
	return p.Implements(marshalerType) || p.Implements(textMarshaler)
}

// maxValueDepth is how deeply a value may nest, so that as part of an event, and that
// in the replacement of a patch, its line is still one that [ParseRecord] takes.
// Events as a whole may be nested one deeper.
const maxValueDepth = jsontext.MaxDepth - 3

// typed writes a value whose static type is known to whoever reads it back.
func (w *goWriter) typed(v reflect.Value) error {
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > maxValueDepth {
		return w.fail("nested deeper than %d; is there a cycle?", maxValueDepth)
	}
	t := v.Type()
	if t == contentType {
		return w.content(v.Interface().(Content))
	}
	if t != numberType && t.PkgPath() != genaiPath && t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && isMarshaler(t) {
		return w.marshaled(v)
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		switch {
		case v.IsNil():
			w.raw("null")
			return nil
		case t.Kind() == reflect.Interface && t.NumMethod() > 0:
			return w.fail("what is in a %s does not come back from JSON", t)
		case t.Kind() == reflect.Interface:
			return w.any(v.Elem().Interface())
		}
		return w.typed(v.Elem())
	case reflect.Struct:
		return w.structure(v)
	case reflect.Map:
		return w.mapping(v)
	case reflect.Slice, reflect.Array:
		return w.sequence(v)
	case reflect.String:
		if t == numberType {
			if !jsontext.IsNumber(v.String()) {
				return w.fail("json.Number %q is not a number", clip(v.String()))
			}
			w.raw(v.String())
			return nil
		}
		return w.str(v.String())
	case reflect.Bool:
		w.buf = strconv.AppendBool(w.buf, v.Bool())
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.buf = strconv.AppendInt(w.buf, v.Int(), 10)
		return nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		w.buf = strconv.AppendUint(w.buf, v.Uint(), 10)
		return nil
	case reflect.Float32, reflect.Float64:
		return w.float(v.Float(), t.Bits())
	}
	return w.fail("JSON cannot carry a value of Go type %s", t)
}

// marshaled writes what the value's own MarshalJSON or MarshalText says.
func (w *goWriter) marshaled(v reflect.Value) error {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	m, ok := p.Interface().(json.Marshaler)
	if !ok {
		text, err := p.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return w.fail("%v", err)
		}
		return w.str(string(text))
	}
	text, err := m.MarshalJSON()
	if err != nil {
		return w.fail("%v", err)
	}
	if err := jsontext.Check(text); err != nil {
		return w.fail("its MarshalJSON wrote %v", err)
	}
	if w.depth+jsontext.Depth(text) > maxValueDepth {
		return w.fail("nested deeper than %d", maxValueDepth)
	}
	w.buf = append(w.buf, jsontext.Compact(text)...)
	return nil
}

func (w *goWriter) structure(v reflect.Value) error {
	ofGenai := v.Type().PkgPath() == genaiPath && isMarshaler(v.Type())
	w.raw("{")
	first := true
	for _, f := range jsonFields(v.Type()) {
		fv, err := v.FieldByIndexErr(f.index)
		if err != nil || f.omitEmpty && fv.IsZero() {
			continue
		}
		if !first {
			w.raw(",")
		}
		first = false
		w.buf = jsontext.AppendQuote(w.buf, f.name)
		w.raw(":")
		err = w.within(f.name, func() error {
			switch {
			case ofGenai && w.genai(fv):
				return nil
			case f.quoted && (fv.Kind() != reflect.Pointer || !fv.IsNil()):
				from := len(w.buf)
				err := w.typed(fv)
				w.buf = jsontext.AppendQuote(w.buf[:from], string(w.buf[from:]))
				return err
			}
			return w.typed(fv)
		})
		if err != nil {
			return err
		}
	}
	w.raw("}")
	return nil
}

// genai writes a field of a genai type that reads its JSON with code of its own, if it
// is of one of the types that the code is there for.
func (w *goWriter) genai(v reflect.Value) bool {
	switch t := v.Type(); {
	case t == durationType:
		w.raw(`"` + durationText(time.Duration(v.Int())) + `"`)
	case t.ConvertibleTo(dateType):
		d := v.Convert(dateType).Interface().(date)
		w.raw(`{"year":` + strconv.Itoa(d.Year) + `,"month":` + strconv.Itoa(int(d.Month)) + `,"day":` + strconv.Itoa(d.Day) + `}`)
	case t == int64sType && !v.IsNil():
		w.raw("[")
		for i := range v.Len() {
			if i > 0 {
				w.raw(",")
			}
			w.raw(`"` + strconv.FormatInt(v.Index(i).Int(), 10) + `"`)
		}
		w.raw("]")
	default:
		return false
	}
	return true
}

// durationText writes d as seconds, as protocol buffers' JSON does, with every
// nanosecond.
func durationText(d time.Duration) string {
	sign, u := "", uint64(d)
	if d < 0 {
		sign, u = "-", -u
	}
	text := sign + strconv.FormatUint(u/1e9, 10)
	if ns := u % 1e9; ns != 0 {
		text += "." + strings.TrimRight(strconv.FormatUint(1e9+ns, 10)[1:], "0")
	}
	return text + "s"
}

func (w *goWriter) mapping(v reflect.Value) error {
	if v.IsNil() {
		w.raw("null")
		return nil
	}
	if v.Type().Key().Kind() != reflect.String {
		return w.fail("keys of a map must be strings, not %s", v.Type().Key())
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	w.raw("{")
	for i, k := range keys {
		if i > 0 {
			w.raw(",")
		}
		if err := w.within(k.String(), func() error {
			if err := w.str(k.String()); err != nil {
				return err
			}
			w.raw(":")
			return w.typed(v.MapIndex(k))
		}); err != nil {
			return err
		}
	}
	w.raw("}")
	return nil
}

func (w *goWriter) sequence(v reflect.Value) error {
	if v.Kind() == reflect.Slice {
		if v.IsNil() {
			w.raw("null")
			return nil
		}
		if v.Type().ConvertibleTo(bytesSliceType) {
			w.raw(`"`)
			w.buf = base64.StdEncoding.AppendEncode(w.buf, v.Bytes())
			w.raw(`"`)
			return nil
		}
	}
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
