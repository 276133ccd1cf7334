// Package jsontext checks and walks JSON text without decoding it.
//
// encoding/json accepts what an append-only log must not: the last of two equal
// keys wins, and text that is not Unicode silently becomes U+FFFD. [Check]
// refuses both and says where. The walking functions ([Members], [Elements],
// [Member]) work on text that Check has passed; they copy nothing.
package jsontext

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deeply arrays and objects may nest. It bounds the stack that
// hostile input can use.
const MaxDepth = 1000

// Error says what is wrong with a text, and where.
type Error struct {
	Pointer string // JSON pointer (RFC 6901) to the value at fault; "" is the whole text
	Offset  int    // bytes from the start of the text
	Problem string

	steps []string // of the pointer, innermost first
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("%s (byte %d)", e.Problem, e.Offset)
	}
	return fmt.Sprintf("%s: %s (byte %d)", e.Pointer, e.Problem, e.Offset)
}

// Check reports whether text is exactly one JSON value by RFC 8259, with white
// space around it allowed, in which no object repeats a key, every string is
// Unicode (valid UTF-8, no lone surrogate escapes), and nothing nests deeper than
// [MaxDepth]. The error is an *[Error].
func Check(text []byte) error {
	_, err := CheckSpaced(text)
	return err
}

// CheckSpaced is Check, and reports whether the text has insignificant white space, which [Compact]
// takes out.
func CheckSpaced(text []byte) (spaced bool, err error) {
	s := scanner{text: text}
	err = s.check()
	return s.spaced, err
}

// CheckCompact is Check for text that must have no insignificant white space.
func CheckCompact(text []byte) error {
	spaced, err := CheckSpaced(text)
	if err != nil {
		return err
	}
	if spaced {
		return &Error{Problem: "white space outside strings"}
	}
	return nil
}

type scanner struct {
	text   []byte
	pos    int
	spaced bool // there was white space outside strings
}

func (s *scanner) check() error {
	if uint64(len(s.text)) > math.MaxUint32 { // see keySet
		return s.fail("longer than 4 GiB")
	}
	s.space()
	if err := s.value(0); err != nil {
		var pointer strings.Builder
		for _, step := range slices.Backward(err.steps) {
			pointer.WriteByte('/')
			pointer.WriteString(EscapeStep(step))
		}
		err.Pointer = pointer.String()
		return err
	}
	s.space()
	if s.pos != len(s.text) {
		return s.fail("more text after the value")
	}
	return nil
}

func (s *scanner) fail(problem string) *Error {
	return &Error{Offset: s.pos, Problem: problem}
}

// under notes a step of the way to the error, as the recursion unwinds.
func (e *Error) under(step string) *Error {
	e.steps = append(e.steps, step)
	return e
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
			s.spaced = true
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *scanner) value(depth int) *Error {
	if s.pos == len(s.text) {
		return s.fail("text ends where a value should be")
	}
	switch c := s.text[s.pos]; {
	case depth == MaxDepth && (c == '{' || c == '['):
		return s.fail(fmt.Sprintf("nested deeper than %d", MaxDepth))
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.array(depth)
	case c == '"':
		return s.str()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	default:
		return s.fail(fmt.Sprintf("%q starts no JSON value", c))
	}
}

func (s *scanner) literal(word string) *Error {
	if len(s.text)-s.pos < len(word) || string(s.text[s.pos:s.pos+len(word)]) != word {
		return s.fail("not a JSON value; want " + word)
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) array(depth int) *Error {
	s.pos++
	s.space()
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := s.value(depth + 1); err != nil {
			return err.under(strconv.Itoa(i))
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case ']':
			s.pos++
			return nil
		default:
			return s.fail("want ',' or ']' in the array")
		}
	}
}

// Up to this many keys, a linear scan finds a repeated one faster than a table does.
const linearKeys = 16

// keySet is the keys of an object. It is a hash table of where in the text they stand: an object may
// have a key for each six bytes of its text, for which a map would take a multiple of that.
type keySet struct {
	places []uint32 // where a key begins, and 1; 0 is free
	n      int
}

var keySeed = maphash.MakeSeed()

// add adds the key that begins at a place of the text, and reports whether it is new.
func (k *keySet) add(text []byte, at int) (added bool) {
	if 4*k.n >= 3*len(k.places) {
		old := k.places
		k.places = make([]uint32, max(4*linearKeys, 2*len(old)))
		for _, p := range old {
			if p != 0 {
				*k.slot(text, keyAt(text, p)) = p
			}
		}
	}
	place := uint32(at) + 1
	slot := k.slot(text, keyAt(text, place))
	if *slot != 0 {
		return false
	}
	*slot = place
	k.n++
	return true
}

// slot returns where the key is, or belongs.
func (k *keySet) slot(text, key []byte) *uint32 {
	mask := uint64(len(k.places) - 1)
	for i := maphash.Bytes(keySeed, key) & mask; ; i = (i + 1) & mask {
		if p := k.places[i]; p == 0 || bytes.Equal(keyAt(text, p), key) {
			return &k.places[i]
		}
	}
}

func keyAt(text []byte, place uint32) []byte {
	c := Cursor{text: text, pos: int(place - 1)}
	return keyText(c.Value())
}

func (s *scanner) object(depth int) *Error {
	s.pos++
	s.space()
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	var few [linearKeys][]byte
	var starts [linearKeys]int
	var many keySet
	for n := 0; ; n++ {
		if s.peek() != '"' {
			return s.fail("want a string as key in the object")
		}
		start := s.pos
		if err := s.str(); err != nil {
			return err
		}
		key := keyText(s.text[start:s.pos])
		repeated := false
		switch {
		case n < linearKeys:
			for _, k := range few[:n] {
				repeated = repeated || bytes.Equal(k, key)
			}
			few[n], starts[n] = key, start
		case n == linearKeys:
			for _, at := range starts {
				many.add(s.text, at)
			}
			fallthrough
		default:
			repeated = !many.add(s.text, start)
		}
		if repeated {
			s.pos = start
			return s.fail("the key is there twice").under(string(key))
		}
		s.space()
		if s.peek() != ':' {
			return s.fail("want ':' after the key").under(string(key))
		}
		s.pos++
		s.space()
		if err := s.value(depth + 1); err != nil {
			return err.under(string(key))
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case '}':
			s.pos++
			return nil
		default:
			return s.fail("want ',' or '}' in the object")
		}
	}
}

func (s *scanner) str() *Error {
	s.pos++
	for s.pos < len(s.text) {
		s.pos += plainLen(s.text[s.pos:])
		if s.pos == len(s.text) {
			break
		}
		c := s.text[s.pos]
		switch {
		case c == '"':
			s.pos++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < 0x20:
			return s.fail(fmt.Sprintf("control character %U in a string; write it as an escape", c))
		default:
			r, size := utf8.DecodeRune(s.text[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return s.fail(fmt.Sprintf("byte 0x%02x is not UTF-8", c))
			}
			s.pos += size
		}
	}
	return s.fail("text ends inside a string")
}

// plainLen returns how many bytes of a string's rest stand for themselves, as ASCII does but
// for quotes, backslashes and control characters.
func plainLen(text []byte) int {
	for i, c := range text {
		if !plain[c] {
			return i
		}
	}
	return len(text)
}

var plain = func() (is [256]bool) {
	for c := range is {
		is[c] = c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\'
	}
	return is
}()

func (s *scanner) escape() *Error {
	if s.pos+1 >= len(s.text) {
		return s.fail("text ends inside a string")
	}
	switch s.text[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
	default:
		return s.fail(fmt.Sprintf("unknown escape \\%c", s.text[s.pos+1]))
	}
	unit, ok := hex4(s.text[s.pos:])
	if !ok {
		return s.fail("\\u wants four hexadecimal digits")
	}
	switch {
	case unit >= 0xDC00 && unit < 0xE000:
		return s.fail("a lone low surrogate is not Unicode text")
	case unit >= 0xD800 && unit < 0xDC00:
		low, ok := hex4(s.text[s.pos+6:])
		if !ok || low < 0xDC00 || low >= 0xE000 {
			return s.fail("a lone high surrogate is not Unicode text")
		}
		s.pos += 12
	default:
		s.pos += 6
	}
	return nil
}

// hex4 reads the four hexadecimal digits of a \u escape at the start of b.
func hex4(b []byte) (uint32, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var u uint32
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			u = u<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			u = u<<4 | uint32(c-'a'+10)
		case c >= 'A' && c <= 'F':
			u = u<<4 | uint32(c-'A'+10)
		default:
			return 0, false
		}
	}
	return u, true
}

func (s *scanner) number() *Error {
	start := s.pos
	n := numberLen(s.text[s.pos:])
	if n == 0 {
		return s.fail("malformed number")
	}
	s.pos = start + n
	return nil
}

// IsNumber reports whether text is one JSON number and nothing else.
func IsNumber(text string) bool {
	return text != "" && numberLen([]byte(text)) == len(text)
}

// numberLen returns the length of the JSON number at the start of b, or 0.
func numberLen(b []byte) int {
	i := 0
	digits := func() bool {
		from := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return 0
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	// A digit after a leading zero belongs to no JSON number.
	if i < len(b) && b[i] >= '0' && b[i] <= '9' {
		return 0
	}
	return i
}

// EscapeStep writes one step of a JSON pointer.
func EscapeStep(step string) string {
	if !strings.ContainsAny(step, "~/") {
		return step
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
}
