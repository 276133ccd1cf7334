package patch

import (
	"bytes"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// Value is an immutable JSON value, such as a state value or an event's content. The zero Value is null. It keeps
// number literals of JSON text and the types of Go values. Values may be shared between goroutines.
type Value struct {
	text  []byte // compact JSON; nil is null
	types goTypes
	fault *FieldError // why the value cannot be written; only [Text] sets it
}

// ParseValue parses JSON text. The error matches [ErrInvalid].
func ParseValue(text []byte) (Value, error) {
	own, err := jsonvalue.Parse(text)
	if err != nil {
		return Value{}, jsonError(err)
	}
	if jsonvalue.Depth(own) > maxValueDepth {
		return Value{}, fieldErr("", "nested deeper than %d", maxValueDepth)
	}
	return Value{text: own}, nil
}

// NewValue converts a Go value made of booleans, numbers, strings, []byte, times, json.Number, slices, maps with string
// keys, and Values. A map of Values becomes an object. Times are converted to UTC. It keeps no reference to v. It
// refuses with a *[FieldError] values that would not come back deep-equal: structs, defined types, errors, NaN, and
// text that is not UTF-8.
func NewValue(v any) (Value, error) {
	text, types, err := writeGo(&v, false)
	if err != nil {
		return Value{}, err
	}
	return Value{text: text, types: types}, nil
}

// Any returns the value as a Go value, which the caller owns. A value made from Go is deep-equal to the original. A
// value parsed from JSON is nil, bool, string, map[string]any, []any, int64 for an integer, float64 for -0 and for a
// number with point or exponent, or json.Number for a number that neither can hold. A value of a forged record that is
// not JSON is nil.
func (v Value) Any() any {
	if len(v.types) == 0 {
		switch jsonvalue.KindOf(v.text) {
		case jsonvalue.Null:
			return nil
		case jsonvalue.Bool:
			return v.text[0] == 't'
		case jsonvalue.Number:
			return numberByKind(string(v.text))
		case jsonvalue.String:
			return jsonvalue.Unquote(v.text)
		}
	}
	var out any
	if _, err := readTyped(v.text, v.types, numberByKind, &out); err != nil {
		return nil
	}
	return out
}

// Decode stores the value in the variable that into points to, as [Event.Decode] does. The zero Value leaves it
// unchanged. The error matches [ErrInvalid].
func (v Value) Decode(into any) error {
	switch {
	case v.fault != nil:
		return v.fault
	case v.text == nil:
		return nil
	}
	return decodeTyped("", v.text, v.types, into)
}

// MarshalJSON returns the value's JSON text, with numbers as they were written.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.fault != nil {
		return nil, v.fault
	}
	return bytes.Clone(v.json()), nil
}

// UnmarshalJSON parses JSON text as [ParseValue] does.
func (v *Value) UnmarshalJSON(text []byte) error {
	parsed, err := ParseValue(text)
	if err == nil {
		*v = parsed
	}
	return err
}

// String returns the value's JSON text.
func (v Value) String() string { return string(v.json()) }

// Clone returns the value with its own copy of the text. Without it, a value of an event's state delta keeps the whole
// event's JSON in memory.
func (v Value) Clone() Value {
	v.text = bytes.Clone(v.text)
	return v
}

// Equal reports whether two values are equal. It ignores the order of keys, and compares numbers by kind (with or
// without point or exponent) and value.
func (v Value) Equal(o Value) bool { return jsonvalue.Equal(v.json(), o.json()) }

func (v Value) json() []byte {
	if v.text == nil {
		return []byte("null")
	}
	return v.text
}

// isNull reports whether the value is null.
func (v Value) isNull() bool { return jsonvalue.KindOf(v.text) == jsonvalue.Null }

// Change is a change of one key of the session's state.
type Change struct {
	Key   string
	Value Value
}

// Members returns the members of a value that is an object, or nil.
func (v Value) Members() map[string]Value {
	if jsonvalue.KindOf(v.text) != jsonvalue.Object {
		return nil
	}
	types, members := v.types.byMember(""), map[string]Value{}
	for key, text := range jsonvalue.Members(v.text) {
		members[key] = Value{text: text, types: types[key]}
	}
	return members
}
