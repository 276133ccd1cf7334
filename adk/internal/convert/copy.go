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

// CopyEvent returns an event that shares nothing changeable with e. The event must come from the log.
func CopyEvent(e *session.Event) *session.Event {
	c := *e
	copier{}.own(reflect.ValueOf(&c).Elem(), 0)
	return &c
}

// Plain returns a copy of an event or a state that can be stored as JSON. A value inside an `any` that would come back
// changed is replaced by what its JSON says, and bytes that are not UTF-8 by U+FFFD. mended reports whether there were
// such bytes. Plain returns v itself if JSON cannot carry it.
func Plain[T any](v T) (plain T, mended bool) {
	plain = v
	c := copier{dynamic: plainValue, mended: &mended}
	if !c.own(reflect.ValueOf(&plain).Elem(), 0) {
		return v, mended
	}
	return plain, mended
}

// plainValue returns what the JSON of v says, or an error's text. If v comes back from storage unchanged, it returns v,
// or a copy in which only texts were mended. If JSON cannot carry v, it returns v. It is a copier's dynamic.
func plainValue(c copier, v any, depth int) (plain any, ok bool) {
	if _, err := patch.NewValue(v); err == nil {
		return v, true
	}
	if err, isError := v.(error); isError {
		return err.Error(), true
	}
	own := reflect.New(reflect.TypeOf(v)).Elem()
	own.Set(reflect.ValueOf(v))
	if !c.own(own, depth) {
		return nil, false
	}
	if _, err := patch.NewValue(own.Interface()); err == nil {
		return own.Interface(), true
	}
	value, err := patch.NewValue(typedJSON(own, 0))
	if err != nil { // encode v as encoding/json does, like ADK's SQL service
		if value, err = patch.NewValue(encoded(own.Interface())); err != nil {
			return v, true
		}
	}
	return untyped(value).Any(), true
}

// Unicode returns s with U+FFFD for each byte that is not UTF-8, as encoding/json writes it.
func Unicode(s string) string { return string([]rune(s)) }

// BadText is the warning about a text of a model, a tool or the user that is not UTF-8.
const BadText = "patchlog: a text is not UTF-8; U+FFFD takes the place of the bytes at fault"

// copier copies what a shallow copy of a value still shares with the original.
type copier struct {
	// dynamic, if not nil, replaces a value in an `any` that is neither a map[string]any nor an []any, and reports
	// whether it could; see own. Texts are then mended too.
	dynamic func(c copier, v any, depth int) (any, bool)

	mended *bool // if not nil, set if a text was mended
}

// maxCopyDepth is deeper than any event is nested.
const maxCopyDepth = 4096

// own copies everything that an addressable value refers to, and puts the copies into the value. It reports false if
// something is nested deeper than any event, or contains itself.
func (c copier) own(v reflect.Value, depth int) bool {
	if depth++; depth > maxCopyDepth {
		return false
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, i := range c.referring(v.Type()) {
			if f := v.Field(i); !f.IsZero() && !c.own(f, depth) {
				return false
			}
		}
	case reflect.String:
		if s := v.String(); c.dynamic != nil && !utf8.ValidString(s) {
			v.SetString(Unicode(s))
			if c.mended != nil {
				*c.mended = true
			}
		}
	case reflect.Array:
		return c.ownElements(v, depth)
	case reflect.Pointer:
		if v.IsNil() {
			return true
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(v.Elem())
		v.Set(p)
		return c.own(p.Elem(), depth)
	case reflect.Slice:
		if v.IsNil() {
			return true
		}
		s := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(s, v)
		v.Set(s)
		return c.ownElements(s, depth)
	case reflect.Map:
		if v.IsNil() {
			return true
		}
		if m, ok := v.Interface().(map[string]any); ok && c.dynamic == nil { // most maps; a clone is faster
			m = maps.Clone(m)
			for key, value := range m {
				if value != nil && c.refers(reflect.TypeOf(value)) {
					own := value
					c.own(reflect.ValueOf(&own).Elem(), depth)
					m[key] = own
				}
			}
			v.Set(reflect.ValueOf(m))
			return true
		}
		m := reflect.MakeMapWithSize(v.Type(), v.Len())
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		keys := v.MapKeys()
		if key.Kind() == reflect.String && c.dynamic != nil { // if keys become equal, the last one stays
			slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		}
		for _, k := range keys {
			key.Set(k)
			elem.Set(v.MapIndex(k))
			if key.Kind() == reflect.String && !c.own(key, depth) || !c.own(elem, depth) {
				return false
			}
			m.SetMapIndex(key, elem)
		}
		v.Set(m)
	case reflect.Interface:
		return v.IsNil() || c.ownDynamic(v, depth)
	}
	return true
}

// ownElements is own for the elements of an array or a slice.
func (c copier) ownElements(v reflect.Value, depth int) bool {
	if !c.refers(v.Type().Elem()) {
		return true
	}
	for i := range v.Len() {
		if !c.own(v.Index(i), depth) {
			return false
		}
	}
	return true
}

// ownDynamic is own for an interface that is not nil.
func (c copier) ownDynamic(v reflect.Value, depth int) bool {
	switch x := v.Interface().(type) {
	case bool:
		return true
	case string, map[string]any, []any:
	default:
		if f, ok := x.(float64); ok && f-f == 0 { // neither NaN nor infinite
			return true
		}
		if c.dynamic == nil || v.NumMethod() > 0 { // here another value may not fit
			break
		}
		plain, ok := c.dynamic(c, x, depth)
		if !ok {
			return false
		}
		if plain == nil {
			v.SetZero()
			return true
		}
		v.Set(reflect.ValueOf(plain))
	}
	if !c.refers(v.Elem().Type()) {
		return true
	}
	elem := reflect.New(v.Elem().Type()).Elem()
	elem.Set(v.Elem())
	if !c.own(elem, depth) {
		return false
	}
	v.Set(elem)
	return true
}

var referringFields, textFields sync.Map // reflect.Type of a struct → []int

// referring returns the indices of a struct's fields that the copier may have to change: fields by which a copy of the
// struct shares something, and texts if they are mended. Callers cannot change unexported fields.
func (c copier) referring(t reflect.Type) []int {
	known := &referringFields
	if c.dynamic != nil {
		known = &textFields
	}
	if cached, ok := known.Load(t); ok {
		return cached.([]int)
	}
	var indices []int
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && c.refers(f.Type) {
			indices = append(indices, i)
		}
	}
	known.Store(t, indices)
	return indices
}

// refers reports whether the copier may have to change a value of the type.
func (c copier) refers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	case reflect.String:
		return c.dynamic != nil
	case reflect.Struct:
		return len(c.referring(t)) > 0
	case reflect.Array:
		return c.refers(t.Elem())
	}
	return false
}
