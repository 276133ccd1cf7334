package convert

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// CopyEvent returns a deep copy of e, which must be an event of the log.
func CopyEvent(e *session.Event) *session.Event {
	c := *e
	copier{}.deepCopy(reflect.ValueOf(&c).Elem(), 0)
	return &c
}

// Plain returns a copy of an event or of a state that can be stored as JSON without further changes. If storing a
// value of type any would change it, Plain replaces the value by the value that its JSON decodes to. In strings,
// U+FFFD replaces each byte that is not UTF-8. repaired reports whether there were such bytes. If v contains itself or
// is nested too deeply, Plain returns v.
func Plain[T any](v T) (plain T, repaired bool) {
	plain = v
	c := copier{replaceAny: plainValue, repaired: &repaired}
	if !c.deepCopy(reflect.ValueOf(&plain).Elem(), 0) {
		return v, repaired
	}
	return plain, repaired
}

// plainValue is the replaceAny function of Plain's copier. If storing v does not change it, plainValue returns v, or a
// copy with repaired strings. Otherwise it returns the value of v's JSON, or the text of an error. If v has no JSON
// encoding, it returns v. ok is false if v contains itself.
func plainValue(c copier, v any, depth int) (plain any, ok bool) {
	if _, err := patch.NewValue(v); err == nil {
		return v, true
	}
	if err, isError := v.(error); isError {
		return err.Error(), true
	}
	copied := reflect.New(reflect.TypeOf(v)).Elem()
	copied.Set(reflect.ValueOf(v))
	if !c.deepCopy(copied, depth) {
		return nil, false
	}
	if _, err := patch.NewValue(copied.Interface()); err == nil {
		return copied.Interface(), true
	}
	value, err := patch.NewValue(typedJSON(copied, 0))
	if err != nil { // encode v with encoding/json, as ADK's SQL service does
		if value, err = patch.NewValue(encoded(copied.Interface())); err != nil {
			return v, true
		}
	}
	return untyped(value).Any(), true
}

// ToValidUTF8 returns s with U+FFFD in place of each byte that is not UTF-8, as in encoding/json.
func ToValidUTF8(s string) string { return string([]rune(s)) }

// InvalidUTF8 describes a string in which invalid UTF-8 was replaced. The string may come from a model, a tool
// or the user. InvalidUTF8Warning is the log message about such a string.
const (
	InvalidUTF8        = "a string is not valid UTF-8; U+FFFD replaces the invalid bytes"
	InvalidUTF8Warning = "patchlog: " + InvalidUTF8
)

// copier makes a shallow copy into a deep copy.
type copier struct {
	// replaceAny, if not nil, replaces values of type any. It is not called for booleans, strings, finite float64
	// values, map[string]any and []any. ok is false if replaceAny cannot replace the value. If replaceAny is set, the
	// copier also replaces invalid UTF-8 in strings.
	replaceAny func(c copier, v any, depth int) (any, bool)

	repaired *bool // if not nil, set to true when invalid UTF-8 was replaced
}

// maxCopyDepth is greater than the depth of any event.
const maxCopyDepth = 4096

// deepCopy replaces everything that v refers to by a copy. The value v must be addressable. deepCopy returns false if
// a value contains itself or is nested deeper than maxCopyDepth.
func (c copier) deepCopy(v reflect.Value, depth int) bool {
	if depth++; depth > maxCopyDepth {
		return false
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, i := range c.fieldsToCopy(v.Type()) {
			if f := v.Field(i); !f.IsZero() && !c.deepCopy(f, depth) {
				return false
			}
		}
	case reflect.String:
		if s := v.String(); c.replaceAny != nil && !utf8.ValidString(s) {
			v.SetString(ToValidUTF8(s))
			if c.repaired != nil {
				*c.repaired = true
			}
		}
	case reflect.Array:
		return c.copyElements(v, depth)
	case reflect.Pointer:
		if v.IsNil() {
			return true
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(v.Elem())
		v.Set(p)
		return c.deepCopy(p.Elem(), depth)
	case reflect.Slice:
		if v.IsNil() {
			return true
		}
		s := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(s, v)
		v.Set(s)
		return c.copyElements(s, depth)
	case reflect.Map:
		if v.IsNil() {
			return true
		}
		if m, ok := v.Interface().(map[string]any); ok && c.replaceAny == nil { // in this common case, a clone is faster
			m = maps.Clone(m)
			for key, value := range m {
				if value != nil && c.needsCopy(reflect.TypeOf(value)) {
					own := value
					c.deepCopy(reflect.ValueOf(&own).Elem(), depth)
					m[key] = own
				}
			}
			v.Set(reflect.ValueOf(m))
			return true
		}
		m := reflect.MakeMapWithSize(v.Type(), v.Len())
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		keys := v.MapKeys()
		if key.Kind() == reflect.String && c.replaceAny != nil { // if several repaired keys are equal, the last one is kept
			slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		}
		for _, k := range keys {
			key.Set(k)
			elem.Set(v.MapIndex(k))
			if key.Kind() == reflect.String && !c.deepCopy(key, depth) || !c.deepCopy(elem, depth) {
				return false
			}
			m.SetMapIndex(key, elem)
		}
		v.Set(m)
	case reflect.Interface:
		return v.IsNil() || c.copyInterface(v, depth)
	}
	return true
}

// copyElements applies deepCopy to the elements of an array or a slice.
func (c copier) copyElements(v reflect.Value, depth int) bool {
	if !c.needsCopy(v.Type().Elem()) {
		return true
	}
	for i := range v.Len() {
		if !c.deepCopy(v.Index(i), depth) {
			return false
		}
	}
	return true
}

// copyInterface applies deepCopy to an interface value that is not nil.
func (c copier) copyInterface(v reflect.Value, depth int) bool {
	switch x := v.Interface().(type) {
	case bool:
		return true
	case string, map[string]any, []any:
	default:
		if f, ok := x.(float64); ok && f-f == 0 { // x is neither NaN nor infinite
			return true
		}
		if c.replaceAny == nil || v.NumMethod() > 0 { // a replacement might not implement the interface
			break
		}
		plain, ok := c.replaceAny(c, x, depth)
		if !ok {
			return false
		}
		if plain == nil {
			v.SetZero()
			return true
		}
		v.Set(reflect.ValueOf(plain))
	}
	if !c.needsCopy(v.Elem().Type()) {
		return true
	}
	elem := reflect.New(v.Elem().Type()).Elem()
	elem.Set(v.Elem())
	if !c.deepCopy(elem, depth) {
		return false
	}
	v.Set(elem)
	return true
}

var copiedFields, copiedAndTextFields sync.Map // reflect.Type of a struct → []int

// fieldsToCopy returns the indices of the struct fields that the copier may have to change. Shallow copies of the
// struct share data through these fields. If the copier replaces invalid UTF-8, fieldsToCopy includes the fields that
// contain strings. It leaves out unexported fields, because callers cannot change them.
func (c copier) fieldsToCopy(t reflect.Type) []int {
	cache := &copiedFields
	if c.replaceAny != nil {
		cache = &copiedAndTextFields
	}
	if cached, ok := cache.Load(t); ok {
		return cached.([]int)
	}
	var indices []int
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && c.needsCopy(f.Type) {
			indices = append(indices, i)
		}
	}
	cache.Store(t, indices)
	return indices
}

// needsCopy reports whether the copier may have to change values of type t.
func (c copier) needsCopy(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	case reflect.String:
		return c.replaceAny != nil
	case reflect.Struct:
		return len(c.fieldsToCopy(t)) > 0
	case reflect.Array:
		return c.needsCopy(t.Elem())
	}
	return false
}
