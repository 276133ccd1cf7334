package patch

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// goType records the Go type of a value inside an `any` where JSON alone would
// bring back another: an int, a []string, a json.Number. The events that need it
// are those built from Go values; what came as JSON has none.
type goType struct {
	pointer string // JSON pointer inside the event, or inside the value for NewValue
	name    string // as typeName gives it
}

// notes are the Go types noted for a value and the values inside it, in the order in
// which these stand in its text, outer ones first. So one walk through the text meets
// them all, however many there are.
type notes struct {
	types []goType
	skip  int // how much of each pointer leads to the value
}

// notesAt returns what is noted for the value that the steps lead to in an event.
func notesAt(types []goType, steps ...string) notes {
	n := notes{types: types}
	for _, step := range steps {
		for len(n.types) > 0 && !n.firstLeads(jsontext.EscapeStep(step)) {
			n.types = n.types[1:]
		}
		n = n.take(step)
	}
	return n
}

// here returns the type noted for the value itself, and what is noted inside it.
func (n notes) here() (name string, inside notes, ok bool) {
	if len(n.types) == 0 || len(n.types[0].pointer) != n.skip {
		return "", n, false
	}
	return n.types[0].name, notes{n.types[1:], n.skip}, true
}

// take splits off what is noted for the next member or element, which step leads to.
func (n *notes) take(step string) notes {
	if len(n.types) == 0 {
		return notes{}
	}
	step = jsontext.EscapeStep(step)
	all := n.types
	for len(n.types) > 0 && n.firstLeads(step) {
		n.types = n.types[1:]
	}
	return notes{all[:len(all)-len(n.types)], n.skip + len("/") + len(step)}
}

func (n *notes) takeElement(i int) notes {
	if len(n.types) == 0 {
		return notes{}
	}
	return n.take(strconv.Itoa(i))
}

// firstLeads reports whether the first pointer goes on through an escaped step.
func (n *notes) firstLeads(step string) bool {
	rest, ok := strings.CutPrefix(n.types[0].pointer[n.skip:], "/")
	if !ok {
		return false
	}
	rest, ok = strings.CutPrefix(rest, step)
	return ok && (rest == "" || rest[0] == '/')
}

// under returns the notes as they are for an object that has the value under a key.
func (n notes) under(key string) []goType {
	out := make([]goType, len(n.types))
	for i, t := range n.types {
		out[i] = goType{"/" + jsontext.EscapeStep(key) + t.pointer[n.skip:], t.name}
	}
	return out
}

// detached returns the notes as they are for the value by itself.
func (n notes) detached() notes {
	if n.skip == 0 {
		return n
	}
	var own notes
	for _, t := range n.types {
		own.types = append(own.types, goType{t.pointer[n.skip:], t.name})
	}
	return own
}

// end returns an error if something is noted that the walk has not met.
func (n notes) end() error {
	if len(n.types) == 0 {
		return nil
	}
	return fmt.Errorf("a Go type is noted for %q, where nothing of that kind is", clip(n.types[0].pointer))
}

// Base types that come back by name. float64, bool and string need no note.
var baseTypes = map[string]reflect.Type{
	"bool": reflect.TypeFor[bool](), "string": reflect.TypeFor[string](),
	"int": reflect.TypeFor[int](), "int8": reflect.TypeFor[int8](), "int16": reflect.TypeFor[int16](),
	"int32": reflect.TypeFor[int32](), "int64": reflect.TypeFor[int64](),
	"uint": reflect.TypeFor[uint](), "uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](),
	"uint32": reflect.TypeFor[uint32](), "uint64": reflect.TypeFor[uint64](),
	"float32": reflect.TypeFor[float32](), "float64": reflect.TypeFor[float64](),
	anyName: reflect.TypeFor[any](), "json.Number": reflect.TypeFor[json.Number](), "time": reflect.TypeFor[time.Time](),
}

const anyName = "any"

var (
	numberType = baseTypes["json.Number"]
	timeType   = baseTypes["time"]
	bytesType  = reflect.TypeFor[[]byte]()
)

var baseNames = func() map[reflect.Type]string {
	m := make(map[reflect.Type]string, len(baseTypes))
	for name, t := range baseTypes {
		m[t] = name
	}
	return m
}()

// maxTypeNesting is how many slices and maps a type in an `any` may be made of. Stored
// bytes name types too, and reflect never forgets one that it has built.
const maxTypeNesting = 8

// typeName names a type made of base types, slices and maps with string keys. Any
// other type does not come back from JSON as it was, and has no name here.
func typeName(t reflect.Type) (string, bool) {
	var prefix strings.Builder
	for range maxTypeNesting + 1 {
		if name, ok := baseNames[t]; ok {
			return prefix.String() + name, true
		}
		switch {
		case t.Name() != "": // a defined type; its name is the program's, not ours
			return "", false
		case t.Kind() == reflect.Slice:
			prefix.WriteString("[]")
		case t.Kind() == reflect.Map && t.Key() == baseTypes["string"]:
			prefix.WriteString("map[string]")
		default:
			return "", false
		}
		t = t.Elem()
	}
	return "", false
}

func typeByName(name string) (reflect.Type, bool) {
	var wraps []func(reflect.Type) reflect.Type
	for range maxTypeNesting + 1 {
		if t, ok := baseTypes[name]; ok {
			for _, wrap := range slices.Backward(wraps) {
				t = wrap(t)
			}
			return t, true
		}
		if elem, ok := strings.CutPrefix(name, "[]"); ok {
			name, wraps = elem, append(wraps, reflect.SliceOf)
		} else if elem, ok := strings.CutPrefix(name, "map[string]"); ok {
			name, wraps = elem, append(wraps, func(t reflect.Type) reflect.Type {
				return reflect.MapOf(baseTypes["string"], t)
			})
		}
	}
	return nil, false
}

// decodeAny decodes the next value at a cursor for an `any`, with the Go types that
// are noted. Where none is, objects become map[string]any, arrays []any, and a number
// what number makes of its literal.
func decodeAny(c *jsontext.Cursor, n notes, number func(literal string) any) (any, error) {
	if name, inside, ok := n.here(); ok {
		t, known := typeByName(name)
		if !known {
			return nil, fmt.Errorf("unknown Go type %q noted for %q", clip(name), clip(n.types[0].pointer))
		}
		v := reflect.New(t).Elem()
		err := decodeAs(v, c.Value(), inside, number)
		return v.Interface(), err
	}
	switch c.Kind() {
	case jsontext.Array:
		list := []any{}
		for c.Enter(); c.More(); {
			v, err := decodeAny(c, n.takeElement(len(list)), number)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, n.end()
	case jsontext.Object:
		object := map[string]any{}
		for c.Enter(); c.More(); {
			key := c.Key()
			v, err := decodeAny(c, n.take(key), number)
			if err != nil {
				return nil, err
			}
			object[key] = v
		}
		return object, n.end()
	case jsontext.Bool:
		return c.Value()[0] == 't', n.end()
	case jsontext.String:
		return jsontext.Unquote(c.Value()), n.end()
	case jsontext.Number:
		return number(string(c.Value())), n.end()
	}
	c.Value() // null
	return nil, n.end()
}

// decodeAs decodes into a value of a type that has a name. encoding/json does it but
// for an `any` within, whose value has notes of its own.
func decodeAs(v reflect.Value, text []byte, n notes, number func(string) any) error {
	t := v.Type()
	holder := t
	for holder.Kind() == reflect.Slice || holder.Kind() == reflect.Map {
		holder = holder.Elem()
	}
	kind := jsontext.KindOf(text)
	switch {
	case holder.Kind() != reflect.Interface:
		if decodeInto(jsontext.NewCursor(text), notes{}, v) {
			break
		}
		if err := json.Unmarshal(text, v.Addr().Interface()); err != nil {
			return err
		}
	case t == holder:
		elem, err := decodeAny(jsontext.NewCursor(text), n, number)
		if err != nil || elem == nil {
			return err
		}
		v.Set(reflect.ValueOf(elem))
		return nil
	case kind == jsontext.Null:
	case t.Kind() == reflect.Slice && kind == jsontext.Array:
		v.Set(reflect.MakeSlice(t, 0, 0))
		for i, text := range jsontext.Elements(text) {
			elem := reflect.New(t.Elem()).Elem()
			if err := decodeAs(elem, text, n.takeElement(i), number); err != nil {
				return err
			}
			v.Set(reflect.Append(v, elem))
		}
	case t.Kind() == reflect.Map && kind == jsontext.Object:
		v.Set(reflect.MakeMap(t))
		for k, text := range jsontext.Members(text) {
			elem := reflect.New(t.Elem()).Elem()
			if err := decodeAs(elem, text, n.take(k), number); err != nil {
				return err
			}
			v.SetMapIndex(reflect.ValueOf(k), elem)
		}
	default:
		return fmt.Errorf("%s is no %s", clip(text), t)
	}
	return n.end()
}

// numberByKind keeps a literal's kind and value: an integer becomes an int64, a
// number with point or exponent a float64, what neither can hold a json.Number.
func numberByKind(literal string) any {
	if !strings.ContainsAny(literal, ".eE") && literal != "-0" {
		if i, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return i
		}
		return json.Number(literal)
	}
	return numberAsFloat(literal)
}

// numberAsFloat is what Go programs expect in decoded arguments: a float64, or a
// json.Number where a float64 would be infinite.
func numberAsFloat(literal string) any {
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || math.IsInf(f, 0) {
		return json.Number(literal)
	}
	return f
}
