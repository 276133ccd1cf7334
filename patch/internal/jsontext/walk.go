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
		w := walker{text: object, pos: 1}
		for w.next('}') {
			key := w.skip()
			escaped := bytes.IndexByte(key, '\\') >= 0
			w.next('}') // the colon
			if !yield(keyText(key, escaped), w.skip()) {
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
		w := walker{text: array, pos: 1}
		for i := 0; w.next(']'); i++ {
			if !yield(i, w.skip()) {
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
	w := walker{text: value}
	depth, deepest := 0, 0
	for w.pos < len(w.text) {
		switch w.text[w.pos] {
		case '"':
			w.str()
			continue
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
		w.pos++
	}
	return deepest
}

// walker steps through checked text.
type walker struct {
	text []byte
	pos  int
}

// next passes white space, commas and colons and reports whether another value
// stands before the closing bracket.
func (w *walker) next(closing byte) bool {
	for w.pos < len(w.text) {
		switch c := w.text[w.pos]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			w.pos++
		default:
			return c != closing
		}
	}
	return false
}

// skip passes one value and returns it.
func (w *walker) skip() []byte {
	start := w.pos
	switch KindOf(w.text[w.pos:]) {
	case String:
		w.str()
	case Object, Array:
		depth := 0
	scan:
		for w.pos < len(w.text) {
			switch w.text[w.pos] {
			case '"':
				w.str()
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					w.pos++
					break scan
				}
			}
			w.pos++
		}
	default:
	plain:
		for w.pos < len(w.text) {
			switch w.text[w.pos] {
			case ',', ':', '}', ']', ' ', '\t', '\n', '\r':
				break plain
			}
			w.pos++
		}
	}
	return w.text[start:w.pos:w.pos]
}

func (w *walker) str() {
	w.pos++
	for w.pos < len(w.text) {
		switch w.text[w.pos] {
		case '\\':
			w.pos += 2
		case '"':
			w.pos++
			return
		default:
			w.pos++
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

func keyText(quoted []byte, escaped bool) string {
	if !escaped {
		return string(quoted[1 : len(quoted)-1])
	}
	return Unquote(quoted)
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

// QuotedLen returns how many bytes [AppendQuote] appends for s.
func QuotedLen(s string) int {
	n := len(s) + len(`""`)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n += len(`\n`) - 1
		case c < 0x20:
			n += len(`\u0000`) - 1
		}
	}
	return n
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
