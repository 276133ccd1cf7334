package patch

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// decodeInto decodes the next value at a cursor into v, which is settable, as encoding/json does, but with the noted
// Go types in each `any`. It reports false if the value does not fit.
func decodeInto(c *jsontext.Cursor, n notes, v reflect.Value) bool {
	if v.Kind() == reflect.Interface && v.NumMethod() == 0 && v.IsNil() {
		value, err := decodeAny(c, n, numberAsFloat)
		if value != nil {
			v.Set(reflect.ValueOf(value))
		}
		return err == nil
	}
	if _, inside, ok := n.here(); ok {
		n = inside
	}
	t, kind := v.Type(), c.Kind()
	s := structOf(t)
	switch {
	case s.own: // below
	case kind == jsontext.Null && v.Kind() != reflect.Interface:
		switch c.Value(); v.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice:
			v.SetZero()
		}
		return true
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		return decodeInto(c, n, v.Elem())
	case v.Kind() == reflect.Struct && kind == jsontext.Object:
		for c.Enter(); c.More(); {
			key := c.KeyText()
			inside := notes{}
			if len(n.types) > 0 {
				inside = n.take(string(key))
			}
			if i, ok := s.field(key); !ok {
				c.Value()
			} else if !decodeInto(c, inside, v.Field(i)) {
				return false
			}
		}
		return true
	case v.Kind() == reflect.Slice && kind == jsontext.Array && t.Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(t, 0, 1))
		for c.Enter(); c.More(); {
			i := v.Len()
			v.Grow(1)
			v.SetLen(i + 1)
			if !decodeInto(c, n.takeElement(i), v.Index(i)) {
				return false
			}
		}
		return true
	case v.Kind() == reflect.Map && kind == jsontext.Object && t.Key() == baseTypes["string"]:
		if v.IsNil() {
			v.Set(reflect.MakeMap(t))
		}
		if m, ok := v.Interface().(map[string]any); ok { // by far most maps
			for c.Enter(); c.More(); {
				key := c.Key()
				value, err := decodeAny(c, n.take(key), numberAsFloat)
				if m[key] = value; err != nil {
					return false
				}
			}
			return true
		}
		for c.Enter(); c.More(); {
			key := c.Key()
			elem := reflect.New(t.Elem()).Elem()
			if !decodeInto(c, n.take(key), elem) {
				return false
			}
			v.SetMapIndex(reflect.ValueOf(key), elem)
		}
		return true
	case v.Kind() == reflect.String && kind == jsontext.String && t != numberType:
		v.SetString(jsontext.Unquote(c.Value()))
		return true
	case v.Kind() == reflect.Bool && kind == jsontext.Bool:
		v.SetBool(c.Value()[0] == 't')
		return true
	case v.CanInt() && kind == jsontext.Number:
		i, err := strconv.ParseInt(string(c.Value()), 10, 64)
		v.SetInt(i)
		return err == nil && !v.OverflowInt(i)
	case v.CanUint() && kind == jsontext.Number:
		u, err := strconv.ParseUint(string(c.Value()), 10, 64)
		v.SetUint(u)
		return err == nil && !v.OverflowUint(u)
	case v.CanFloat() && kind == jsontext.Number:
		f, err := strconv.ParseFloat(string(c.Value()), t.Bits())
		v.SetFloat(f)
		return err == nil
	}
	return json.Unmarshal(c.Value(), v.Addr().Interface()) == nil
}

// structType has the fields of a struct type as encoding/json knows them.
type structType struct {
	own    bool // encoding/json must decode values of the type
	fields map[string]int
	folded map[string]int // by names in lower case, the first of a name
}

func (s *structType) field(key []byte) (int, bool) {
	i, ok := s.fields[string(key)]
	if !ok {
		i, ok = s.folded[strings.ToLower(string(key))]
	}
	return i, ok
}

var (
	structTypes     sync.Map // by reflect.Type
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func structOf(t reflect.Type) *structType {
	if cached, ok := structTypes.Load(t); ok {
		return cached.(*structType)
	}
	p := reflect.PointerTo(t)
	s := &structType{own: p.Implements(unmarshaler) || p.Implements(textUnmarshaler), fields: map[string]int{}, folded: map[string]int{}}
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || strings.Contains(options, "string") {
			s.own = true
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, twice := s.fields[name]; twice {
			s.own = true
		}
		s.fields[name] = i
		if _, ok := s.folded[strings.ToLower(name)]; !ok {
			s.folded[strings.ToLower(name)] = i
		}
	}
	structTypes.Store(t, s)
	return s
}
