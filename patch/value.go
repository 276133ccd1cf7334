package patch

import (
	"bytes"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// Value is an immutable JSON value, such as a state value or an event's content. The zero Value is null. A
// value parsed from JSON keeps its number literals. A value made from Go keeps its Go types. Goroutines may
// share a Value.
type Value struct {
	text  []byte // compact JSON; nil means null
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

// NewValue converts a Go value. It does not retain v.
//
// It accepts booleans, numbers, strings, []byte, times, json.Number, slices, maps with string keys, and Values.
// A map of Values becomes an object. Times are converted to UTC.
//
// It refuses values that would not come back deep-equal: structs, defined types, errors, NaN, infinities, and
// text that is not UTF-8. The error is a *[FieldError].
func NewValue(v any) (Value, error) {
	text, types, err := writeGo(&v, false)
	if err != nil {
		return Value{}, err
	}
	return Value{text: text, types: types}, nil
}

// Any returns the value as a Go value, which the caller owns. If the value was made from Go, the result is
// deep-equal to the original. If it was parsed from JSON, the result is one of these types:
//
//   - nil, bool, string, map[string]any or []any
//   - int64 for an integer
//   - float64 for -0, and for a number with a point or an exponent
//   - json.Number for a number that neither int64 nor float64 can hold
//
// If the value comes from a forged record and is not JSON, Any returns nil.
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

// Decode stores the value in the variable that into points to, as [Event.Decode] does. The zero Value does not
// change the variable. The error matches [ErrInvalid].
func (v Value) Decode(into any) error {
	switch {
	case v.fault != nil:
		return v.fault
	case v.text == nil:
		return nil
	}
	return decodeTyped("", v.text, v.types, into)
}

// MarshalJSON returns the value's JSON text. Numbers keep their literals.
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

// Clone returns the value with its own copy of the JSON text. A value of an event's state delta otherwise keeps
// the JSON of the whole event in memory.
func (v Value) Clone() Value {
	v.text = bytes.Clone(v.text)
	return v
}

// Equal reports whether two values are equal. It ignores the order of keys. Numbers are equal if they have the
// same value and the same kind. For example, 1.0 equals 1e0 but not 1.
func (v Value) Equal(o Value) bool { return jsonvalue.Equal(v.json(), o.json()) }

func (v Value) json() []byte {
	if v.text == nil {
		return []byte("null")
	}
	return v.text
}

func (v Value) isNull() bool { return jsonvalue.KindOf(v.text) == jsonvalue.Null }

// Change is a change of one key in the session's state.
type Change struct {
	Key   string
	Value Value
}

// Members returns the members of an object. It returns nil if the value is not an object.
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
