package convert

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/patch"
)

// jsonOf converts a value of an ADK type to a form that package patch encodes without loss. Durations keep every
// nanosecond, empty lists and maps are kept, and values of type any keep their Go types.
func jsonOf(v any) any { return typedJSON(reflect.ValueOf(v), 0) }

func typedJSON(v reflect.Value, depth int) any {
	if depth++; depth > maxCopyDepth { // v may contain itself
		return v.Interface()
	}
	switch v.Kind() {
	case reflect.Interface:
		return v.Interface()
	case reflect.String:
		if v.Type() != reflect.TypeFor[json.Number]() {
			return v.String()
		}
	case reflect.Bool:
		return v.Bool()
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return typedJSON(v.Elem(), depth)
	case reflect.Struct:
		t := structOf(v.Type())
		if t.hasMarshaler {
			if v.CanAddr() { // the MarshalJSON method may have a pointer receiver
				v = v.Addr()
			}
			break
		}
		m := make(map[string]any, len(t.fields))
		for _, f := range t.fields {
			field, err := v.FieldByIndexErr(f.index)
			switch {
			case err != nil || f.omitEmpty && field.IsZero():
			case field.Type() == reflect.TypeFor[time.Duration]() && v.Type().PkgPath() == genaiPath:
				m[f.name] = durationText(time.Duration(field.Int()))
			default:
				m[f.name] = typedJSON(field, depth)
			}
		}
		return m
	case reflect.Map:
		if v.Type() == reflect.TypeFor[map[string]any]() {
			return v.Interface()
		}
		if v.IsNil() || v.Type().Key().Kind() != reflect.String {
			break
		}
		m := make(map[string]any, v.Len())
		for entries := v.MapRange(); entries.Next(); {
			m[entries.Key().String()] = typedJSON(entries.Value(), depth)
		}
		return m
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = typedJSON(v.Index(i), depth)
		}
		return list
	case reflect.Float32, reflect.Float64:
		value, err := patch.NewValue(v.Float())
		if err == nil {
			return untyped(value)
		}
	}
	return encoded(v.Interface())
}

// encoded returns v as encoding/json encodes it. If encoding/json fails, encoded returns v itself.
func encoded(v any) any {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if e.Encode(v) == nil {
		if value, err := patch.ParseValue(text.Bytes()); err == nil {
			return value
		}
	}
	return v
}

// untyped returns v without the recorded Go types.
func untyped(v patch.Value) patch.Value {
	v, _ = patch.ParseValue([]byte(v.String())) // the String method returns JSON
	return v
}

// durationText formats d in seconds, as the JSON of protocol buffers does, with every nanosecond.
func durationText(d time.Duration) string {
	sign, u := "", uint64(d)
	if d < 0 {
		sign, u = "-", -u
	}
	text := strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, u/1e9, u%1e9), "0")
	return strings.TrimSuffix(text, ".") + "s"
}

// jsonStruct describes how encoding/json encodes a struct.
type jsonStruct struct {
	hasMarshaler bool // set if the struct's own MarshalJSON is used, which loses nothing
	fields       []jsonField
}

type jsonField struct {
	name      string
	index     []int
	omitEmpty bool
}

var (
	adkPath   = reflect.TypeFor[session.Event]().PkgPath()
	genaiPath = reflect.TypeFor[genai.Content]().PkgPath()
)

var jsonStructs sync.Map // reflect.Type → jsonStruct

func structOf(t reflect.Type) jsonStruct {
	if cached, ok := jsonStructs.Load(t); ok {
		return cached.(jsonStruct)
	}
	p := reflect.PointerTo(t)
	s := jsonStruct{hasMarshaler: p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())}
	if t.PkgPath() == adkPath {
		s.hasMarshaler = false
	}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" || !f.IsExported() || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if f.Type == reflect.TypeFor[time.Duration]() && t.PkgPath() == genaiPath {
			s.hasMarshaler = false // genai's own MarshalJSON rounds durations
		}
		s.fields = append(s.fields, jsonField{name, f.Index, strings.Contains(options, "omit")})
	}
	jsonStructs.Store(t, s)
	return s
}
