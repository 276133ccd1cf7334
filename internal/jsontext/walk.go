package jsontext

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf16"
	"unicode/utf8"
)

// Kind names what a checked JSON value is.
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

// KindOf returns the kind of a checked value without white space around it.
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

// Members yields the keys and values of a checked object in their order. Of any
// other value it yields nothing. The values are parts of the object's own bytes.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		if KindOf(object) != Object {
			return
		}
		c := Cursor{text: object}
		c.Enter()
		for c.More() {
			if !yield(c.Key(), c.Value()) {
				return
			}
		}
	}
}

// Elements yields the elements of a checked array. Of any other value it yields
// nothing. The elements are parts of the array's own bytes.
func Elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if KindOf(array) != Array {
			return
		}
		c := Cursor{text: array}
		c.Enter()
		for i := 0; c.More(); i++ {
			if !yield(i, c.Value()) {
				return
			}
		}
	}
}

// Member returns the value of a key in a checked object, or nil if there is none.
func Member(object []byte, key string) []byte {
	for k, v := range Members(object) {
		if k == key {
			return v
		}
	}
	return nil
}

// Depth returns how deeply arrays and objects nest in a checked value: 0 in a number,
// 1 in an empty array.
func Depth(value []byte) int {
	c := Cursor{text: value}
	depth, deepest := 0, 0
	for c.pos < len(c.text) {
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

// Cursor steps through a checked value. One that enters arrays and objects passes
// each byte once, however deeply they nest.
type Cursor struct {
	text []byte
	pos  int
}

// NewCursor returns a cursor before a checked value without white space around it.
func NewCursor(value []byte) *Cursor { return &Cursor{text: value} }

// Kind returns the kind of the next value.
func (c *Cursor) Kind() Kind { return KindOf(c.text[c.pos:]) }

// Enter goes into the array or object that comes next. [Cursor.More] must be called
// before each of its elements or keys, until it reports that there is none.
func (c *Cursor) Enter() { c.pos++ }

// More reports whether another element or key comes. If none does it leaves the array
// or object.
func (c *Cursor) More() bool {
	for {
		switch c.text[c.pos] {
		case ' ', '\t', '\n', '\r', ',', ':':
			c.pos++
		case ']', '}':
			c.pos++
			return false
		default:
			return true
		}
	}
}

// Key passes a key of an object and returns its text.
func (c *Cursor) Key() string { return string(c.KeyText()) }

// KeyText is Key for a caller that changes nothing: the text is part of the object's own
// bytes where it can be.
func (c *Cursor) KeyText() []byte {
	key := keyText(c.Value())
	c.More() // the colon
	return key
}

// keyText is [Unquote], but the text is part of the string's own bytes where it can be.
func keyText(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		return []byte(Unquote(quoted))
	}
	return quoted[1 : len(quoted)-1]
}

// Value passes the next value and returns it.
func (c *Cursor) Value() []byte {
	start := c.pos
	switch c.Kind() {
	case String:
		c.str()
	case Object, Array:
		depth := 0
	scan:
		for {
			switch c.text[c.pos] {
			case '"':
				c.str()
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					c.pos++
					break scan
				}
			}
			c.pos++
		}
	default:
	plain:
		for c.pos < len(c.text) {
			switch c.text[c.pos] {
			case ',', ':', '}', ']', ' ', '\t', '\n', '\r':
				break plain
			}
			c.pos++
		}
	}
	return c.text[start:c.pos:c.pos]
}

// str passes a string. It ends at the first quote that an even number of backslashes stands
// before; a search for quotes is much faster than a walk.
func (c *Cursor) str() {
	for c.pos++; ; c.pos++ {
		c.pos += bytes.IndexByte(c.text[c.pos:], '"')
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

// Compact returns the checked value without insignificant white space, in bytes
// of its own.
func Compact(value []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(value))
	if err := json.Compact(&b, value); err != nil {
		panic("jsontext: Compact wants checked text: " + err.Error())
	}
	return b.Bytes()
}

// Unquote returns the text of a checked JSON string.
func Unquote(quoted []byte) string {
	body := quoted[1 : len(quoted)-1]
	i := bytes.IndexByte(body, '\\')
	if i < 0 {
		return string(body)
	}
	out := append(make([]byte, 0, len(body)), body[:i]...)
	for i < len(body) {
		c := body[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		switch e := body[i+1]; e {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			unit, _ := hex4(body[i:])
			r := rune(unit)
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(body[i+2:])
				r = utf16.DecodeRune(r, rune(low))
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, e)
		}
		i += 2
	}
	return string(out)
}

// RuneLen returns how many runes [Unquote] would return, without making the text.
func RuneLen(quoted []byte) int {
	body := quoted[1 : len(quoted)-1]
	n := 0
	for {
		i := bytes.IndexByte(body, '\\')
		if i < 0 {
			return n + utf8.RuneCount(body)
		}
		n += utf8.RuneCount(body[:i]) + 1
		if body[i+1] != 'u' {
			body = body[i+2:]
			continue
		}
		unit, _ := hex4(body[i:])
		body = body[i+6:]
		if utf16.IsSurrogate(rune(unit)) {
			body = body[6:]
		}
	}
}

const hexDigits = "0123456789abcdef"

// AppendQuote appends s as a JSON string. It escapes what JSON requires to be
// escaped and nothing else. s must be valid UTF-8.
func AppendQuote(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
