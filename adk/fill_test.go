package adk_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// filler sets every exported field of a value, at any depth, to something that careless
// encodings lose.
type filler struct {
	n      int64
	within []reflect.Type
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Type() {
	case reflect.TypeFor[time.Duration]():
		v.SetInt(-f.n*1e9 - 987654321)
		return
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2024, 2, 29, 23, 59, 59, int(f.n)+1e8, time.UTC)))
		return
	case reflect.TypeFor[jsonschema.Schema]():
		// Its fields exclude one another; its JSON is its own.
		v.Set(reflect.ValueOf(jsonschema.Schema{
			Type: "object", Title: fmt.Sprint("schema ", f.n), Required: []string{"b"},
			Properties: map[string]*jsonschema.Schema{
				"b": {Type: "integer"}, "a": {Types: []string{"string", "null"}, Default: json.RawMessage(`"x"`)},
			},
			Extra: map[string]any{"x-order": []any{"b", "a"}},
		}))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		if slices.Contains(f.within, v.Type()) {
			return // a type inside itself: once is enough
		}
		f.within = append(f.within, v.Type())
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i))
			}
		}
		f.within = f.within[:len(f.within)-1]
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
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
		v.Set(reflect.ValueOf(values(f.n)))
	default:
		panic("no rule for " + v.Type().String())
	}
}

// values are such as stand in an `any`.
func values(n int64) map[string]any {
	return map[string]any{
		"int": int(n), "int64": int64(1<<53 + 1), "uint8": uint8(7), "float": 5.0, "float32": float32(0.1),
		"negative zero": math.Copysign(0, -1), "true": true, "nil": nil, "bytes": []byte{0, 255},
		"number": json.Number("1e400"), "strings": []string{"a", ""}, "empty": []any{}, "none": map[string]any{},
		"deep": map[string]any{"list": []any{map[string]any{"n": n}, 0.1, "x"}},
	}
}

// emptied makes every pointer, map and slice one that is there and empty.
func emptied(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			emptied(v.Elem(), depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				emptied(v.Field(i), depth)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	}
}
