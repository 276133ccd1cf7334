// Package jsonvalue has what the JSON library lacks for JSON that a log keeps: a limit of its depth, comparison by
// value, and a walk that copies nothing.
//
// [Parse] checks a text. The walking functions work on what it returns. They never panic or run on, whatever the bytes:
// a stored record is read without a check of its JSON, and of other text they yield what looks like values.
package jsonvalue

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deeply arrays and objects may nest. It bounds the stack of what recurses over a value.
const MaxDepth = 1000

// Error says what is wrong with a text, and where.
type Error struct {
	Pointer string // JSON pointer (RFC 6901) to the value at fault; "" is the whole text
	Offset  int64  // bytes from the start of the text
	Problem string
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("%s (byte %d)", e.Problem, e.Offset)
	}
	return fmt.Sprintf("%s: %s (byte %d)", e.Pointer, e.Problem, e.Offset)
}

// Parse checks that text is exactly one JSON value by RFC 8259 in which no object repeats a key, every string is
// Unicode (valid UTF-8, no lone surrogate escapes), and nothing nests deeper than [MaxDepth]. It returns the value
// without insignificant white space, in bytes of its own. The error is an *[Error].
func Parse(text []byte) ([]byte, error) {
	value := jsontext.Value(bytes.Clone(text))
	unique := jsontext.AllowDuplicateNames(len(text) > maxLibraryNames)
	// The formatter checks while it compacts. Only what it refuses is read again, for a better error.
	if value.Format(jsontext.PreserveRawStrings(true), unique) != nil {
		return nil, problem(text, unique)
	}
	if Depth(value) > MaxDepth {
		return nil, errTooDeep
	}
	if len(text) > maxLibraryNames {
		c := NewCursor(text)
		c.More() // passes white space
		if err := (&names{Cursor: c}).check(); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// maxLibraryNames is the length of the texts whose keys the library compares. It is faster, but keeps a map of the keys
// of an object, which may take 14 times the memory of its text.
const maxLibraryNames = 64 << 10

const problemTwice = "the key is there twice"

var errTooDeep = &Error{Problem: fmt.Sprintf("nested deeper than %d", MaxDepth)}

// problem says what is wrong with a text that [Parse] refuses.
func problem(text []byte, unique jsontext.Options) error {
	d := jsontext.NewDecoder(bytes.NewReader(text), unique)
	_, err := d.ReadValue()
	if err == nil {
		if _, err = d.ReadToken(); err == nil {
			return &Error{Offset: d.InputOffset(), Problem: "more text after the value"}
		}
	}
	at := &jsontext.SyntacticError{Err: errors.New("there is no value"), ByteOffset: int64(len(text))}
	errors.As(err, &at) // not if the text is blank
	out := &Error{Pointer: string(at.JSONPointer), Offset: at.ByteOffset, Problem: at.Err.Error()}
	switch {
	case errors.Is(at.Err, jsontext.ErrDuplicateName):
		out.Problem = problemTwice
	case strings.Count(out.Pointer, "/") > MaxDepth:
		return errTooDeep
	}
	return out
}

// names finds a key that an object has twice.
type names struct {
	*Cursor
	open []uint64 // hashes of the keys of the objects that are entered, in their order
}

var hashSeed = maphash.MakeSeed()

// check passes a value whose nesting is bounded.
func (n *names) check() *Error {
	switch n.Kind() {
	case Array:
		n.Enter()
		for i := 0; n.More(); i++ {
			if err := n.check(); err != nil {
				return err.within(strconv.Itoa(i))
			}
		}
	case Object:
		first, start := len(n.open), n.pos
		for n.Enter(); n.More(); {
			key := n.Key()
			n.open = append(n.open, maphash.Bytes(hashSeed, key))
			if err := n.check(); err != nil {
				return err.within(Step(string(key)))
			}
		}
		hashes := n.open[first:]
		slices.Sort(hashes)
		for i := 1; i < len(hashes); i++ {
			if hashes[i] == hashes[i-1] {
				if err := n.twice(start, hashes[i]); err != nil {
					return err
				}
			}
		}
		n.open = n.open[:first]
	default:
		n.Value()
	}
	return nil
}

// twice looks in the object at a position for two equal keys of a hash.
func (n *names) twice(object int, hash uint64) *Error {
	c, seen := &Cursor{n.text, object}, map[string]bool{}
	for c.Enter(); c.More(); c.Value() {
		at := c.pos
		if key := c.Key(); maphash.Bytes(hashSeed, key) == hash {
			if seen[string(key)] {
				return &Error{"/" + Step(string(key)), int64(at), problemTwice}
			}
			seen[string(key)] = true
		}
	}
	return nil
}

func (e *Error) within(step string) *Error {
	e.Pointer = "/" + step + e.Pointer
	return e
}

// Depth returns how deeply arrays and objects nest in a value: 0 in a number, 1 in an empty array.
func Depth(value []byte) int {
	depth, deepest := 0, 0
	for c := (Cursor{text: value}); c.pos < len(c.text); {
		switch c.text[c.pos] {
		case '"':
			c.str()
			continue
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
		c.pos++
	}
	return deepest
}

// Kind names what a value is.
type Kind byte

// The kinds of JSON values.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

// KindOf returns the kind of a value without white space around it.
func KindOf(value []byte) Kind {
	if len(value) == 0 {
		return Null
	}
	switch value[0] {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	default:
		return Number
	}
}

// Members yields the keys and values of an object in their order. Of any other value it yields nothing. The values are
// parts of the object's own bytes.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		if KindOf(object) != Object {
			return
		}
		c := NewCursor(object)
		for c.Enter(); c.More(); {
			if key := c.Key(); !yield(string(key), c.Value()) {
				return
			}
		}
	}
}

// Elements yields the elements of an array. Of any other value it yields nothing. The elements are parts of the array's
// own bytes.
func Elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if KindOf(array) != Array {
			return
		}
		c := NewCursor(array)
		c.Enter()
		for i := 0; c.More(); i++ {
			if !yield(i, c.Value()) {
				return
			}
		}
	}
}

// Member returns the value that the keys lead to through objects inside each other, or nil.
func Member(object []byte, keys ...string) []byte {
next:
	for _, key := range keys {
		if KindOf(object) != Object {
			return nil
		}
		c := NewCursor(object)
		for c.Enter(); c.More(); {
			if name, v := c.Key(), c.Value(); string(name) == key {
				object = v
				continue next
			}
		}
		return nil
	}
	return object
}

// Cursor steps through a value. One that enters arrays and objects passes each byte once, however deeply they
// nest.
type Cursor struct {
	text []byte
	pos  int
}

// NewCursor returns a cursor before a value.
func NewCursor(value []byte) *Cursor { return &Cursor{text: value} }

// Pos returns how many bytes of the value are passed.
func (c *Cursor) Pos() int { return c.pos }

// Kind returns the kind of the next value.
func (c *Cursor) Kind() Kind { return KindOf(c.text[c.pos:]) }

// Enter goes into the array or object that comes next. [Cursor.More] must be called before each of its elements or keys,
// until it reports that there is none.
func (c *Cursor) Enter() { c.pos = min(c.pos+1, len(c.text)) }

// More reports whether another element or key comes. If none does it leaves the array or object.
func (c *Cursor) More() bool {
	for ; c.pos < len(c.text); c.pos++ {
		switch c.text[c.pos] {
		case ',', ':', ' ', '\t', '\r', '\n':
		case ']', '}':
			c.pos++
			return false
		default:
			return true
		}
	}
	return false
}

// Key passes a key of an object and returns its text, which is part of the object's own bytes where it can be.
func (c *Cursor) Key() []byte {
	key := c.Value()
	c.More() // passes the colon
	if len(key) >= 2 && bytes.IndexByte(key, '\\') < 0 {
		return key[1 : len(key)-1]
	}
	return []byte(Unquote(key))
}

// Value passes the next value and returns it.
func (c *Cursor) Value() []byte {
	start := c.pos
	switch c.Kind() {
	case String:
		c.str()
	case Object, Array:
		for depth := 0; c.pos < len(c.text); {
			switch c.text[c.pos] {
			case '"':
				c.str()
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if c.pos++; depth == 0 {
				break
			}
		}
	default:
		for c.pos < len(c.text) && strings.IndexByte(",:}] \t\r\n", c.text[c.pos]) < 0 {
			c.pos++
		}
	}
	return c.text[start:c.pos:c.pos]
}

// str passes a string. It ends at the first quote that an even number of backslashes stands before; a search for quotes
// is much faster than a walk.
func (c *Cursor) str() {
	for c.pos++; ; c.pos++ {
		n := bytes.IndexByte(c.text[c.pos:], '"')
		if n < 0 {
			c.pos = len(c.text)
			return
		}
		c.pos += n
		before := c.pos
		for c.text[before-1] == '\\' {
			before--
		}
		if (c.pos-before)%2 == 0 {
			c.pos++
			return
		}
	}
}

// Unquote returns the text of a JSON string.
func Unquote(quoted []byte) string {
	if n := len(quoted); n >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : n-1])
	}
	text, _ := jsontext.AppendUnquote(nil, quoted)
	return string(text)
}

// Text returns the text of a value that is a string, or "".
func Text(value []byte) string {
	if KindOf(value) != String {
		return ""
	}
	return Unquote(value)
}

// AppendQuote appends s as a JSON string. Of text that is not UTF-8 it writes U+FFFD for each bad byte.
func AppendQuote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// AppendKey appends a key to the members of an object, whose text dst ends in, and a colon.
func AppendKey(dst []byte, name string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(AppendQuote(dst, name), ':')
}

// Edit returns an object with other values of some members: change is called with each, and returns its value, or nil
// to leave it out. Any other value is returned as it is.
func Edit(object []byte, change func(name string, v []byte) []byte) []byte {
	if KindOf(object) != Object {
		return object
	}
	out := make([]byte, 1, len(object))
	out[0] = '{'
	for name, v := range Members(object) {
		if v = change(name, v); v != nil {
			out = append(AppendKey(out, name), v...)
		}
	}
	return append(out, '}')
}

// With returns an object with a member set, at its end, or without the member if value is nil. A value that is no object
// counts as an empty one.
func With(object []byte, name string, value []byte) []byte {
	if KindOf(object) != Object {
		object = []byte("{}")
	}
	out := Edit(object, func(member string, v []byte) []byte {
		if member == name {
			return nil
		}
		return v
	})
	if value == nil {
		return out
	}
	return append(append(AppendKey(out[:len(out)-1], name), value...), '}')
}

// Step returns one step of a JSON pointer, escaped, without its slash.
func Step(name string) string { return string(jsontext.Pointer("").AppendToken(name))[1:] }

// Equal reports whether two values mean the same: the order of keys is free, strings are compared by their text, numbers
// by kind and value. A number written with a point or an exponent is of another kind than one without. What is no value
// equals only the same bytes.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return KindOf(a) == KindOf(b) && json.Unmarshal(a, &x, comparable) == nil && json.Unmarshal(b, &y, comparable) == nil && reflect.DeepEqual(x, y)
}

// comparable has numbers read in one form for each kind and value.
var comparable = json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	literal, err := d.ReadValue()
	*v = parseNumber(string(literal))
	return err
}))

// number is a number literal in one form for each kind and value.
type number struct {
	float    bool
	negative bool
	digits   string // without zeros at either end
	exponent string // of the last digit, in decimal; as text since it may be huge
}

func parseNumber(literal string) number {
	n := number{float: strings.ContainsAny(literal, ".eE")}
	literal, n.negative = strings.CutPrefix(literal, "-")
	mantissa, exponent := literal, ""
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, exponent = literal[:i], literal[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	trimmed := strings.TrimRight(digits, "0")
	if n.digits = strings.TrimLeft(trimmed, "0"); n.digits != "" {
		n.exponent = addExponent(exponent, len(digits)-len(trimmed)-len(fraction))
	}
	return n
}

// addExponent adds shift to a decimal exponent. One of absurd length is not worth the arithmetic: such literals are
// equal if written alike.
func addExponent(exponent string, shift int) string {
	if len(exponent) > 64 {
		return exponent + " " + strconv.Itoa(shift)
	}
	e := new(big.Int)
	if exponent != "" {
		e.SetString(strings.TrimPrefix(exponent, "+"), 10)
	}
	return e.Add(e, big.NewInt(int64(shift))).String()
}
