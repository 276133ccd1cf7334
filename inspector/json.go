package inspector

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// So deep is JSON indented. What is nested deeper stands there too, so that lines do not become
// longer than what they say.
const deepest = 40

// indentJSON is JSON for people to read, which ends when it has most bytes or a few more. read is
// how many bytes of the text it took. Escapes of letters and signs in strings are undone; those
// of quotes, line breaks and what does not show stay. Whatever the text is, its time is linear
// in what it returns and in the white space between.
func indentJSON(text string, most int) (out string, read int) {
	b := make([]byte, 0, min(most, 2*len(text))+2*deepest)
	depth := 0
	line := func() {
		b = append(b, '\n')
		for range min(depth, deepest) {
			b = append(b, ' ', ' ')
		}
	}
	i := 0
	for i < len(text) && len(b) < most {
		c := text[i]
		i++
		switch c {
		case '{', '[':
			b = append(b, c)
			if end := i + blanks(text[i:]); end < len(text) && (text[end] == '}' || text[end] == ']') {
				b = append(b, text[end])
				i = end + 1
				continue
			}
			depth++
			line()
		case '}', ']':
			depth = max(depth-1, 0)
			line()
			b = append(b, c)
		case ',':
			b = append(b, c)
			line()
		case ':':
			b = append(b, ':', ' ')
		case ' ', '\t', '\r', '\n':
		case '"':
			b = append(b, c)
			var n int
			b, n = appendString(b, text[i:], most)
			i += n
		default:
			b = append(b, c)
		}
	}
	return string(b), i
}

func blanks(text string) int { return len(text) - len(strings.TrimLeft(text, " \t\r\n")) }

// appendString appends the rest of a string in JSON, up to its quote, until b has most bytes.
// read is how many bytes of it that took.
func appendString(b []byte, text string, most int) (_ []byte, read int) {
	i := 0
	for i < len(text) {
		c := text[i]
		if len(b) >= most && utf8.RuneStart(c) {
			break
		}
		if c == '\\' {
			r, size := unescaped(text[i:])
			if r >= 0 {
				b = utf8.AppendRune(b, r)
			} else {
				b = append(b, text[i:i+size]...)
			}
			i += size
			continue
		}
		b = append(b, c)
		i++
		if c == '"' {
			break
		}
	}
	return b, i
}

// unescaped is the rune of the escape that a text begins with, if it can stand there as it is;
// else it is below 0. size is how long the escape is.
func unescaped(text string) (r rune, size int) {
	r, size = hexRune(text), 6
	if r < 0 {
		return -1, min(2, len(text))
	}
	if utf16.IsSurrogate(r) {
		both := utf16.DecodeRune(r, hexRune(text[size:]))
		if both == utf8.RuneError {
			return -1, size
		}
		r, size = both, 2*size
	}
	if !unicode.IsPrint(r) || r == '"' || r == '\\' {
		return -1, size
	}
	return r, size
}

// hexRune reads an escape such as \u00e9. It is below 0 if the text does not begin with one.
func hexRune(text string) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(text[2:6], 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// withoutEscapes is JSON of the same length with blanks in place of the escapes in it: where words
// begin and end in it is where they do in what it says.
func withoutEscapes(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	b := []byte(text)
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		_, size := unescaped(text[i:])
		for end := i + size; i < end; i++ {
			b[i] = ' '
		}
		i--
	}
	return string(b)
}
