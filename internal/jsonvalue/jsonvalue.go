// Package jsonvalue extends the JSON library with functions that a log needs: a limit on the nesting depth,
// comparison by value, and traversal without copying.
//
// [Parse] validates text. The traversal functions expect valid JSON, but they are also used on stored records,
// whose JSON is not validated again. On invalid JSON, they may yield bytes that are not values. They never
// panic, and they always terminate.
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

// MaxDepth is the maximum nesting depth of arrays and objects. It limits the stack of recursive functions.
const MaxDepth = 1000

// Error describes a problem in a JSON text and the position of the problem.
type Error struct {
	Pointer string // JSON pointer (RFC 6901) to the invalid value; "" means the whole text
	Offset  int64  // offset in bytes from the beginning of the text
	Problem string
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("%s (byte %d)", e.Problem, e.Offset)
	}
	return fmt.Sprintf("%s: %s (byte %d)", e.Pointer, e.Problem, e.Offset)
}

// Parse parses exactly one JSON value as defined by RFC 8259, and returns a copy of it without insignificant white
// space. It returns an *[Error] if an object repeats a key, if a string is not Unicode, or if the nesting exceeds
// [MaxDepth]. A string is Unicode if it is valid UTF-8 and has no escapes of unpaired surrogates.
func Parse(text []byte) ([]byte, error) {
	value := jsontext.Value(bytes.Clone(text))
	unique := jsontext.AllowDuplicateNames(len(text) > maxLibraryText)
	// Format validates the text and removes white space. If the text is invalid, it is parsed again for a better
	// error.
	if value.Format(jsontext.PreserveRawStrings(true), unique) != nil {
		return nil, parseError(text, unique)
	}
	if Depth(value) > MaxDepth {
		return nil, errTooDeep
	}
	if len(text) > maxLibraryText {
		c := NewCursor(text)
		c.More() // skips white space
		if err := (&keyChecker{Cursor: c}).check(); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// maxLibraryText is the maximum length of a text for which the JSON library searches repeated keys. The library is
// faster than keyChecker, but it keeps a map of an object's keys. This map can take 14 times the memory of the text.
const maxLibraryText = 64 << 10

const duplicateKey = "duplicate key"

var errTooDeep = &Error{Problem: fmt.Sprintf("nested deeper than %d", MaxDepth)}

// parseError returns the error for a text that [Parse] rejects.
func parseError(text []byte, unique jsontext.Options) error {
	d := jsontext.NewDecoder(bytes.NewReader(text), unique)
	_, err := d.ReadValue()
	if err == nil {
		if _, err = d.ReadToken(); err == nil {
			return &Error{Offset: d.InputOffset(), Problem: "unexpected text after the value"}
		}
	}
	at := &jsontext.SyntacticError{Err: errors.New("missing value"), ByteOffset: int64(len(text))}
	errors.As(err, &at) // a blank text gives no such error
	out := &Error{Pointer: string(at.JSONPointer), Offset: at.ByteOffset, Problem: at.Err.Error()}
	switch {
	case errors.Is(at.Err, jsontext.ErrDuplicateName):
		out.Problem = duplicateKey
	case strings.Count(out.Pointer, "/") > MaxDepth:
		return errTooDeep
	}
	return out
}

// keyChecker finds repeated keys of an object.
type keyChecker struct {
	*Cursor
	hashes []uint64 // hashes of the keys of all objects that were entered, in order
}

var hashSeed = maphash.MakeSeed()

// check reads a value whose nesting depth is within the limit.
func (n *keyChecker) check() *Error {
	switch n.Kind() {
	case Array:
		n.Enter()
		for i := 0; n.More(); i++ {
			if err := n.check(); err != nil {
				return err.within(strconv.Itoa(i))
			}
		}
	case Object:
		first, start := len(n.hashes), n.pos
		for n.Enter(); n.More(); {
			key := n.Key()
			n.hashes = append(n.hashes, maphash.Bytes(hashSeed, key))
			if err := n.check(); err != nil {
				return err.within(Step(string(key)))
			}
		}
		hashes := n.hashes[first:]
		slices.Sort(hashes)
		for i := 1; i < len(hashes); i++ {
			if hashes[i] == hashes[i-1] {
				if err := n.findDuplicate(start, hashes[i]); err != nil {
					return err
				}
			}
		}
		n.hashes = n.hashes[:first]
	default:
		n.Value()
	}
	return nil
}

// findDuplicate searches the object at an offset for two equal keys with the given hash.
func (n *keyChecker) findDuplicate(object int, hash uint64) *Error {
	c, seen := &Cursor{n.text, object}, map[string]bool{}
	for c.Enter(); c.More(); c.Value() {
		at := c.pos
		if key := c.Key(); maphash.Bytes(hashSeed, key) == hash {
			if seen[string(key)] {
				return &Error{"/" + Step(string(key)), int64(at), duplicateKey}
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

// Depth returns the nesting depth of a value. The depth of a number is 0, and the depth of an empty array is 1.
func Depth(value []byte) int {
	depth, deepest := 0, 0
	for c := (Cursor{text: value}); c.pos < len(c.text); {
		switch c.text[c.pos] {
		case '"':
			c.skipString()
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

// Kind is the type of a JSON value.
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

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}

// String returns the kind with an article, such as "a number", for error messages.
func (k Kind) String() string { return kindNames[k] }

// KindOf returns the kind of a value. No white space may surround the value.
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

// Members yields the keys and values of an object in order. It yields nothing if the value is not an object.
// The yielded values alias the object's bytes.
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

// Elements yields the elements of an array. It yields nothing if the value is not an array. The elements alias
// the array's bytes.
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

// Member returns the value at a path of keys through nested objects. If a key is missing, Member returns nil.
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

// Cursor iterates over a value. If a cursor enters all arrays and objects, it reads each byte once, at any nesting
// depth.
type Cursor struct {
	text []byte
	pos  int
}

// NewCursor returns a cursor that is positioned before a value.
func NewCursor(value []byte) *Cursor { return &Cursor{text: value} }

// Pos returns the number of bytes before the cursor.
func (c *Cursor) Pos() int { return c.pos }

// Kind returns the kind of the next value.
func (c *Cursor) Kind() Kind { return KindOf(c.text[c.pos:]) }

// Enter enters the next value, which must be an array or an object. The caller then calls [Cursor.More] before
// each element or key, until More returns false.
func (c *Cursor) Enter() { c.pos = min(c.pos+1, len(c.text)) }

// More reports whether another element or key follows. If there is none, More leaves the array or object.
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

// Key reads a key of an object and returns its text. The text aliases the object's bytes if the key has no
// escapes.
func (c *Cursor) Key() []byte {
	key := c.Value()
	c.More() // skips the colon
	if len(key) >= 2 && bytes.IndexByte(key, '\\') < 0 {
		return key[1 : len(key)-1]
	}
	return []byte(Unquote(key))
}

// Value reads the next value and returns it.
func (c *Cursor) Value() []byte {
	start := c.pos
	switch c.Kind() {
	case String:
		c.skipString()
	case Object, Array:
		for depth := 0; c.pos < len(c.text); {
			switch c.text[c.pos] {
			case '"':
				c.skipString()
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

// skipString skips a string. The string ends at the first quote that follows an even number of backslashes. A search
// for quotes is much faster than a loop over the bytes.
func (c *Cursor) skipString() {
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

// Text returns the text of a string. It returns "" for other values.
func Text(value []byte) string {
	if KindOf(value) != String {
		return ""
	}
	return Unquote(value)
}

// AppendQuote appends s as a JSON string. It replaces each byte that is not UTF-8 by U+FFFD.
func AppendQuote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// AppendKey appends a key and a colon to the unfinished object in dst. If the object already has members, AppendKey
// first appends a comma.
func AppendKey(dst []byte, name string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(AppendQuote(dst, name), ':')
}

// Edit returns an object with changed members. It calls change for each member. The result of change is the new
// value of the member, or nil to remove the member. If the value is not an object, Edit returns the value unchanged.
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

// With returns an object in which a member has the given value. The member moves to the end of the object. If
// value is nil, With removes the member. If object is not an object, With treats it as an empty object.
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

// Step returns name as one escaped reference token of a JSON pointer, without the slash.
func Step(name string) string { return string(jsontext.Pointer("").AppendToken(name))[1:] }

// Equal reports whether two values are equal. It ignores the order of keys. It compares strings by their text, and
// numbers by kind and value. For example, 1.0 equals 1e0 but not 1. If a text is invalid JSON, it is equal only to
// the same bytes.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return KindOf(a) == KindOf(b) && json.Unmarshal(a, &x, normalNumbers) == nil && json.Unmarshal(b, &y, normalNumbers) == nil && reflect.DeepEqual(x, y)
}

// normalNumbers decodes numbers to the type number, so that numbers of equal kind and value are equal.
var normalNumbers = json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	literal, err := d.ReadValue()
	*v = parseNumber(string(literal))
	return err
}))

// number is a number literal in a normal form, which depends only on the kind and the value.
type number struct {
	float    bool
	negative bool
	digits   string // digits without leading and trailing zeros
	exponent string // exponent of the last digit, in decimal; it is a string because it may be huge
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

// addExponent adds shift to a decimal exponent. It does not compute very long exponents, so numbers with such
// exponents are equal only if they are written in the same way.
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
