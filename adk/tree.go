package adk

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/patch"
)

// treeOf returns a value of ADK's types as package patch takes it: a struct as a map of its fields by
// their JSON names, without those that are zero and may be left out, and what is in an `any` as it is.
// It returns v itself if that is inside itself.
func treeOf(v any) any {
	var w treeWriter
	if tree := w.tree(reflect.ValueOf(v), 0); !w.deep {
		return tree
	}
	return v
}

// treeWriter makes trees until one is nested too deeply.
type treeWriter struct{ deep bool }

var (
	genaiPath = reflect.TypeFor[genai.Content]().PkgPath()
	dateType  = reflect.TypeFor[date]()
)

// date is the underlying type of a date in genai's types.
type date struct {
	Year  int
	Month time.Month
	Day   int
}

func (w *treeWriter) tree(v reflect.Value, depth int) any {
	if depth++; depth > maxCopyDepth || w.deep {
		w.deep = true
		return nil
	}
	if t := v.Type(); t.PkgPath() != genaiPath && t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface {
		if value, ok := marshaled(v); ok {
			return value
		}
	}
	switch v.Kind() {
	case reflect.Interface:
		return v.Interface()
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return w.tree(v.Elem(), depth)
	case reflect.Struct:
		m := map[string]any{}
		for _, f := range fieldsIn(v.Type()) {
			field, err := v.FieldByIndexErr(f.index)
			switch {
			case err != nil || f.omitEmpty && field.IsZero():
			case field.Type() == reflect.TypeFor[time.Duration]() && v.Type().PkgPath() == genaiPath:
				m[f.name] = durationText(time.Duration(field.Int()))
			case field.Type().ConvertibleTo(dateType):
				d := field.Convert(dateType).Interface().(date)
				m[f.name] = map[string]any{"year": numberOf(d.Year), "month": numberOf(int(d.Month)), "day": numberOf(d.Day)}
			default:
				m[f.name] = w.tree(field, depth)
			}
		}
		return m
	case reflect.Map:
		if v.IsNil() || v.Type().Key().Kind() != reflect.String {
			break
		}
		m := make(map[string]any, v.Len())
		for entries := v.MapRange(); entries.Next(); {
			m[entries.Key().String()] = w.tree(entries.Value(), depth)
		}
		return m
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return nil
		}
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return base64.StdEncoding.EncodeToString(v.Bytes())
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = w.tree(v.Index(i), depth)
		}
		return list
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Float32:
		return numberOf(float32(v.Float()))
	case reflect.Float64:
		return numberOf(v.Float())
	}
	switch {
	case v.Kind() == reflect.Map && v.IsNil():
		return nil
	case v.CanInt():
		return numberOf(v.Int())
	case v.CanUint():
		return numberOf(v.Uint())
	}
	return v.Interface() // which patch refuses
}

// numberOf returns a number whose reader knows its Go type, or v if JSON cannot carry it.
func numberOf(v any) any {
	if value, err := patch.NewValue(v); err == nil {
		return untyped(value)
	}
	return v
}

// untyped returns a value as its JSON says it.
func untyped(v patch.Value) patch.Value {
	v, _ = patch.ParseValue([]byte(v.String())) // which is JSON
	return v
}

// marshaled returns what the value's own MarshalJSON or MarshalText says, if it has one.
func marshaled(v reflect.Value) (value any, ok bool) {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	switch m := p.Interface().(type) {
	case json.Marshaler:
		text, err := m.MarshalJSON()
		if err != nil {
			return v.Interface(), true // which patch refuses
		}
		if value, err := patch.ParseValue(text); err == nil {
			return value, true
		}
		return v.Interface(), true
	case encoding.TextMarshaler:
		text, err := m.MarshalText()
		if err != nil {
			return v.Interface(), true
		}
		return string(text), true
	}
	return nil, false
}

// durationText writes d as seconds, as protocol buffers' JSON does, with every nanosecond.
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

// treeField is a field of a struct in its JSON.
type treeField struct {
	name      string
	index     []int
	omitEmpty bool
}

var treeFields sync.Map // reflect.Type of a struct → []treeField

func fieldsIn(t reflect.Type) []treeField {
	if cached, ok := treeFields.Load(t); ok {
		return cached.([]treeField)
	}
	var fields []treeField
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" || !f.IsExported() || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		fields = append(fields, treeField{name, f.Index, slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return o == "omitempty" || o == "omitzero" })})
	}
	treeFields.Store(t, fields)
	return fields
}

// decode stores a field of an event in the value that into points to. What is in an `any` has the Go
// type that it was made from.
func decode(p *patch.Event, name string, into any) error {
	if err := p.Decode(name, into); err != nil || !holdsAny(reflect.ValueOf(into)) {
		return err
	}
	var tree any
	if err := p.Decode(name, &tree); err != nil {
		return err
	}
	restore(reflect.ValueOf(into), reflect.ValueOf(tree))
	return nil
}

// holdsAny reports whether there is a value in an `any` somewhere in v.
func holdsAny(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Interface:
		return !v.IsNil()
	case reflect.Pointer:
		return !v.IsNil() && holdsAny(v.Elem())
	case reflect.Struct:
		return slices.ContainsFunc(referring(v.Type()), func(i int) bool { return holdsAny(v.Field(i)) })
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if refers(v.Type().Elem()) && holdsAny(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); refers(v.Type().Elem()) && entries.Next(); {
			if holdsAny(entries.Value()) {
				return true
			}
		}
	}
	return false
}

// restore sets each `any` in v to what a tree of the same JSON has there.
func restore(v, tree reflect.Value) {
	if tree.Kind() == reflect.Interface {
		tree = tree.Elem()
	}
	switch {
	case !tree.IsValid():
	case v.Kind() == reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(tree)
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		restore(v.Elem(), tree)
	case v.Kind() == reflect.Struct && tree.Kind() == reflect.Map:
		for _, f := range fieldsIn(v.Type()) {
			if field, err := v.FieldByIndexErr(f.index); err == nil {
				restore(field, tree.MapIndex(reflect.ValueOf(f.name)))
			}
		}
	case (v.Kind() == reflect.Slice || v.Kind() == reflect.Array) && tree.Kind() == reflect.Slice && refers(v.Type().Elem()):
		for i := range min(v.Len(), tree.Len()) {
			restore(v.Index(i), tree.Index(i))
		}
	case v.Kind() == reflect.Map && tree.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String && refers(v.Type().Elem()):
		for _, key := range v.MapKeys() {
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(v.MapIndex(key))
			restore(elem, tree.MapIndex(reflect.ValueOf(key.String())))
			v.SetMapIndex(key, elem)
		}
	}
}
