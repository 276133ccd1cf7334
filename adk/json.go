package adk

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/patch"
)

// jsonOf returns a value of ADK's types in a form that package patch encodes without loss: durations have every
// nanosecond, and the values of each `any` keep their Go types. It returns v itself if encoding/json loses
// nothing of it, or refuses it.
func jsonOf(v any) any {
	if of := reflect.ValueOf(v); contains(of, isLossy, 0) {
		return typedJSON(of, 0)
	}
	return v // package patch encodes it with encoding/json
}

func typedJSON(v reflect.Value, depth int) any {
	switch {
	case v.Kind() == reflect.Interface, v.Type() == reflect.TypeFor[map[string]any]():
		return v.Interface()
	case v.Kind() == reflect.String && v.Type() == reflect.TypeFor[string]():
		return v.String()
	case depth == maxCopyDepth: // is it inside itself?
		return v.Interface()
	case !contains(v, isLossy, depth):
		return encoded(v.Interface())
	}
	depth++
	switch v.Kind() {
	case reflect.Pointer:
		return typedJSON(v.Elem(), depth)
	case reflect.Struct:
		m := map[string]any{}
		for _, f := range structOf(v.Type()).fields {
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
		if v.Type().Key().Kind() != reflect.String {
			break
		}
		m := make(map[string]any, v.Len())
		for entries := v.MapRange(); entries.Next(); {
			m[entries.Key().String()] = typedJSON(entries.Value(), depth)
		}
		return m
	case reflect.Slice, reflect.Array:
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
	case reflect.Int64:
		return encoded(v.Interface())
	}
	return v.Interface()
}

// encoded returns what encoding/json writes of v, or v itself if it refuses that.
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

// isLossy reports whether a value itself does not come back from what encoding/json writes of it.
func isLossy(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String())
	case reflect.Map:
		return isEmpty(v) || v.Type().Key().Kind() != reflect.String || v.Type().Elem().Kind() == reflect.Interface && !v.IsNil()
	case reflect.Float32, reflect.Float64:
		return v.Float() == math.Trunc(v.Float()) // it would come back as an integer
	case reflect.Int64:
		return v.Type() == reflect.TypeFor[time.Duration]() && v.Int()%int64(time.Second) != 0 // which genai rounds
	}
	return isEmpty(v) || isAny(v)
}

// isEmpty reports whether v is a map or a slice that is there and empty, which encoding/json may leave out.
func isEmpty(v reflect.Value) bool {
	return (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && !v.IsNil() && v.Len() == 0
}

// isAny reports whether v is an `any` that holds a value.
func isAny(v reflect.Value) bool { return v.Kind() == reflect.Interface && !v.IsNil() }

// contains reports whether v or a value inside it satisfies is. It does not look into types with their own
// MarshalJSON or MarshalText, except those of ADK and genai, whose JSON has all fields.
func contains(v reflect.Value, is func(reflect.Value) bool, depth int) bool {
	if depth++; is(v) || depth > maxCopyDepth {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && contains(v.Elem(), is, depth)
	case reflect.Struct:
		t := structOf(v.Type())
		return !t.ownJSON && slices.ContainsFunc(t.fields, func(f jsonField) bool {
			field, err := v.FieldByIndexErr(f.index)
			return err == nil && contains(field, is, depth)
		})
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && v.Type().Elem().Kind() != reflect.Uint8; i++ {
			if contains(v.Index(i), is, depth) {
				return true
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if contains(entries.Key(), is, depth) || contains(entries.Value(), is, depth) {
				return true
			}
		}
	}
	return false
}

// untyped returns a value without its noted Go types.
func untyped(v patch.Value) patch.Value {
	v, _ = patch.ParseValue([]byte(v.String())) // which is JSON
	return v
}

// durationText writes d as seconds, as protocol buffers' JSON does, with every nanosecond.
func durationText(d time.Duration) string {
	sign, u := "", uint64(d)
	if d < 0 {
		sign, u = "-", -u
	}
	text := strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, u/1e9, u%1e9), "0")
	return strings.TrimSuffix(text, ".") + "s"
}

// jsonStruct is what encoding/json knows of a struct.
type jsonStruct struct {
	ownJSON bool // it writes its JSON itself
	fields  []jsonField
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
	s := jsonStruct{ownJSON: p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())}
	switch t.PkgPath() {
	case adkPath, genaiPath:
		s.ownJSON = false
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
		s.fields = append(s.fields, jsonField{name, f.Index, strings.Contains(options, "omit")})
	}
	jsonStructs.Store(t, s)
	return s
}
