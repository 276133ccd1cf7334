package patch

import (
	"bytes"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// Value is an immutable JSON value, such as a state value or an event's content. The zero Value is null. It keeps the
// literals of JSON text and the Go types of Go values. Values may be shared between goroutines.
type Value struct {
	text  []byte // compact checked JSON; nil is null
	types notes
}

// ParseValue returns the value of a JSON text. The error matches [ErrInvalid].
func ParseValue(text []byte) (Value, error) {
	if err := textError(jsontext.Check(text)); err != nil {
		return Value{}, err
	}
	if jsontext.Depth(text) > maxValueDepth {
		return Value{}, fieldErr("", "nested deeper than %d", maxValueDepth)
	}
	return Value{text: jsontext.Compact(text)}, nil
}

// NewValue returns the value of a Go value made of booleans, numbers, strings, []byte, times, json.Number, slices, maps
// with string keys, and Values; a map of Values becomes an object. Times are converted to UTC. It keeps no reference
// to v. It refuses with a *[FieldError] what would not come back deep-equal: structs, defined types, errors, NaN, and
// text that is not UTF-8.
func NewValue(v any) (Value, error) {
	var w goWriter
	if err := w.any(v); err != nil {
		return Value{}, err
	}
	return Value{text: w.buf, types: notes{types: w.types}}, nil
}

// Any returns the value as a Go value, which the caller owns. A value made from Go is deep-equal to the original. One
// made from JSON is nil, bool, string, map[string]any, []any, int64 for an integer, float64 for -0 and a number with a
// point or an exponent, or json.Number for a number that neither can hold.
func (v Value) Any() any {
	if v.text == nil {
		return nil
	}
	out, err := decodeAny(jsontext.NewCursor(v.text), v.types, numberByKind)
	if err != nil {
		panic("patch: " + err.Error()) // NewValue noted the types, or DecodeRecord checked them
	}
	return out
}

// Decode stores the value in the variable that into points to, as [Event.Decode] does. The zero Value leaves it
// unchanged. The error matches [ErrInvalid].
func (v Value) Decode(into any) error {
	if fault := v.fault(); fault != nil {
		return fault
	}
	if v.text == nil {
		return nil
	}
	return decodeTyped("", v.text, v.types, into)
}

// MarshalJSON returns the value's JSON text, numbers as they were written.
func (v Value) MarshalJSON() ([]byte, error) {
	if fault := v.fault(); fault != nil {
		return nil, fault
	}
	return bytes.Clone(v.json()), nil
}

// UnmarshalJSON sets the value to that of a JSON text, as [ParseValue] does.
func (v *Value) UnmarshalJSON(text []byte) error {
	parsed, err := ParseValue(text)
	if err == nil {
		*v = parsed
	}
	return err
}

// String returns the value's JSON text.
func (v Value) String() string {
	if v.text == nil {
		return "null"
	}
	return string(v.text)
}

// Equal reports whether two values are equal. It ignores the order of keys, and compares numbers by kind (with or
// without point or exponent) and value.
func (v Value) Equal(o Value) bool {
	return jsontext.Equal(v.json(), o.json())
}

func (v Value) json() []byte {
	if v.text == nil {
		return []byte("null")
	}
	return v.text
}

// Change sets a key of the session's state.
type Change struct {
	Key   string
	Value Value
}

// Members returns the members of a value that is an object, or nil.
func (v Value) Members() map[string]Value {
	if jsontext.KindOf(v.text) != jsontext.Object {
		return nil
	}
	types := v.types
	members := map[string]Value{}
	for key, text := range jsontext.Members(v.text) {
		members[key] = Value{text, types.take(key)}
	}
	return members
}
