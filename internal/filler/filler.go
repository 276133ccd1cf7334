// Package filler fills Go values with data that a careless encoding would change. Tests use it.
package filler

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// filler sets every exported field of a value to a non-zero value, at any depth.
type filler struct {
	n         int64
	enclosing []reflect.Type
}

// Fill returns a T whose exported fields are all non-zero, at any depth.
func Fill[T any]() *T {
	v := new(T)
	FillValue(reflect.ValueOf(v).Elem())
	return v
}

// FillValue is like [Fill] for a settable value.
func FillValue(v reflect.Value) {
	(&filler{}).fill(v)
	if path := zeroField(v, "", nil); path != "" {
		panic("the filler left " + path + " zero")
	}
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Type() {
	case reflect.TypeFor[time.Duration]():
		v.SetInt(-(f.n*1e9 + 987654321)) // negative, with nanoseconds
		return
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2024, 2, 29, 23, 59, 59, int(f.n), time.UTC)))
		return
	case reflect.TypeFor[map[string]any]():
		v.Set(reflect.ValueOf(OddMap(f.n)))
		return
	case reflect.TypeFor[patch.Value]():
		content, err := patch.NewValue(map[string]any{"role": "model", "parts": []any{
			map[string]any{"text": fmt.Sprint("text ", f.n), "thoughtSignature": []byte{0, 255}},
			map[string]any{"functionCall": map[string]any{"id": "c", "name": "f", "args": OddMap(f.n)}},
		}})
		if err != nil {
			panic(err)
		}
		v.Set(reflect.ValueOf(content))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		if slices.Contains(f.enclosing, v.Type()) {
			return // a recursive type: one level is enough
		}
		f.enclosing = append(f.enclosing, v.Type())
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Tag.Get("json") != "-" {
				f.fill(v.Field(i))
			}
		}
		f.enclosing = f.enclosing[:len(f.enclosing)-1]
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(elem)
			v.SetMapIndex(key, elem)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("<text> & %d \x00\x1b\u2028𝄞", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-f.n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n) | 0x80)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(-float64(f.n) / 3)
	case reflect.Interface:
		v.Set(reflect.ValueOf(OddMap(f.n)))
	default:
		panic("no rule for " + v.Type().String())
	}
}

// zeroField returns the path of an exported field that is zero, or "" if there is none.
func zeroField(v reflect.Value, path string, within []reflect.Type) string {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return zeroField(v.Elem(), path, within)
		}
	case reflect.Struct:
		if slices.Contains(within, v.Type()) || v.NumField() == 0 {
			return ""
		}
		within = append(within, v.Type())
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Tag.Get("json") != "-" {
				if at := zeroField(v.Field(i), path+"/"+f.Name, within); at != "" {
					return at
				}
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if at := zeroField(v.Index(i), path, within); at != "" {
				return at
			}
		}
	}
	if v.IsZero() {
		return path
	}
	return ""
}

// OddMap returns a map with every kind of value that an `any` can contain, including values that JSON alone would not
// restore.
func OddMap(n int64) map[string]any {
	return map[string]any{
		"int": int(n), "int8": int8(-8), "int16": int16(-16), "int32": int32(-32), "int64": int64(1<<53 + 1),
		"uint": uint(n), "uint8": uint8(200), "uint16": uint16(16), "uint32": uint32(32), "uint64": uint64(math.MaxUint64),
		"float32": float32(0.1), "float64": 0.1, "whole": float64(5), "negative zero": math.Copysign(0, -1),
		"huge": math.MaxFloat64, "tiny": math.SmallestNonzeroFloat64,
		"bool": true, "null": nil, "string": "a\x00\u2028\U0010ffff", "": "empty key", "a/b~c": int(1),
		"bytes": []byte{0, 255}, "no bytes": []byte{}, "nil bytes": []byte(nil),
		"number": json.Number("9007199254740993"), "beyond float64": json.Number("1e400"), "1.0": json.Number("1.0"),
		"strings": []string{"a", ""}, "no strings": []string{}, "nil strings": []string(nil),
		"counts": map[string]int{"a": 1, "b/c": 2}, "no counts": map[string]int{}, "nil counts": map[string]int(nil),
		"floats": []float64{1, 0.5}, "float32s": []float32{0.1, 1}, "numbers": []json.Number{"1e400", "0"},
		"list":     []any{int(1), nil, uint8(2), "x", []any{int16(3)}, map[string]any{"deep": int(4)}, []any{}},
		"nil list": []any(nil), "map": map[string]any{"a": map[string]any{"b": int64(5), "~1": float32(1)}},
		"no map": map[string]any{}, "nil map": map[string]any(nil),
		"lists":  [][]any{{int(1), json.Number("1e400")}, nil, {}},
		"maps":   []map[string]any{{"a": int8(1)}, nil, {}},
		"matrix": [][]int{{1}, nil, {}}, "any by key": map[string][]any{"a": {int(1)}, "b": nil},
	}
}
