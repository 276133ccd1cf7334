package identifiers

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/patch"
)

// Text is all that events say, in lines: texts, names, the names and values in the arguments
// of calls and in responses, and messages of errors. Thoughts, ids of calls and the bytes of
// files are left out, and so are nil events.
func Text(events ...*patch.Event) string {
	n := 0
	for _, e := range events {
		if e != nil {
			n += e.EstimatedTokens()
		}
	}
	s := speech{make([]byte, 0, n*patch.RunesPerToken*5/4)}
	for _, e := range events {
		if e == nil {
			continue
		}
		if content, ok := e.Field("content"); ok {
			s.content(content)
		}
		if message, ok := e.Field("errorMessage"); ok {
			s.all(message)
		}
	}
	return string(s.said)
}

// Values is the strings, names and numbers in a JSON text, in lines.
func Values(text json.RawMessage) string {
	var s speech
	s.all(text)
	return string(s.said)
}

// speech collects what JSON texts say. A pass of compaction looks at all of its events this
// way, so it reads them once, and decodes nothing that has no escapes.
type speech struct{ said []byte }

// all takes the strings, names and numbers of a JSON text.
func (s *speech) all(text []byte) { s.scan(text, fieldDepth+1) }

// Depths in a content: its parts, the fields of a part, and the fields of these, such as the
// arguments of a call.
const (
	partDepth  = 3
	fieldDepth = 4
)

// content takes what a content says.
func (s *speech) content(text []byte) { s.scan(text, 0) }

// scan reads a JSON text that stands at a depth.
func (s *speech) scan(text []byte, depth int) {
	part, thought := 0, false // where the part begins in what is said
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case '{', '[':
			depth++
			i++
			if depth == partDepth {
				part, thought = len(s.said), false
			}
		case '}', ']':
			if depth == partDepth && thought {
				s.said = s.said[:part]
			}
			depth--
			i++
		case '"':
			end, escaped := stringEnd(text, i)
			if end > len(text) { // no JSON
				return
			}
			value := after(text, end)
			isName := value < len(text) && text[value] == ':'
			if !isName || depth > fieldDepth {
				s.line(text[i+1:end-1], escaped)
				i = end
				continue
			}
			name := text[i+1 : end-1]
			value = after(text, value+1)
			switch {
			case depth == partDepth && string(name) == "thought":
				thought = bytes.HasPrefix(text[value:], []byte("true"))
			case depth == partDepth && isNote(string(name)), depth == fieldDepth && (string(name) == "id" || string(name) == "data"), depth == 1 && string(name) != "parts":
				value = valueEnd(text, value)
			}
			i = value
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i + 1
			for end < len(text) && isNumberByte(text[end]) {
				end++
			}
			s.line(text[i:end], false)
			i = end
		default:
			i++
		}
	}
}

// isNote reports whether a field of a part says nothing by itself.
func isNote(name string) bool {
	switch name {
	case "thoughtSignature", "videoMetadata", "mediaResolution", "mediaProcessing", "speechMetadata", "partMetadata":
		return true
	}
	return false
}

func isNumberByte(c byte) bool {
	return c-'0' <= 9 || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// stringEnd is where the string that begins at an index ends, behind its quote, or past the
// end of the text if it does not.
func stringEnd(text []byte, start int) (end int, escaped bool) {
	if n := bytes.IndexByte(text[start+1:], '"'); n >= 0 && bytes.IndexByte(text[start+1:start+1+n], '\\') < 0 {
		return start + n + 2, false
	}
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i + 1, escaped
		case '\\':
			escaped = true
			i++
		}
	}
	return len(text) + 1, escaped
}

// valueEnd is where the value that begins at an index ends.
func valueEnd(text []byte, start int) int {
	for i, depth := start, 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end, _ := stringEnd(text, i)
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// after is the index of the first character from one on that is no white space.
func after(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// line takes a line: what a number or the inside of a string says.
func (s *speech) line(text []byte, escaped bool) {
	if len(text) == 0 {
		return
	}
	if escaped {
		s.unescape(text)
	} else {
		s.said = append(s.said, text...)
	}
	s.said = append(s.said, '\n')
}

// unescape takes what the inside of a JSON string says.
func (s *speech) unescape(text []byte) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			s.said = append(s.said, c)
			continue
		}
		i++
		switch c = text[i]; c {
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'u':
			r := hex(text[i+1:])
			i += min(4, len(text)-i-1)
			if utf16.IsSurrogate(r) && bytes.HasPrefix(text[i+1:], []byte(`\u`)) {
				if both := utf16.DecodeRune(r, hex(text[i+3:])); both != utf8.RuneError {
					r = both
					i += 6
				}
			}
			s.said = utf8.AppendRune(s.said, r)
			continue
		}
		s.said = append(s.said, c)
	}
}

// hex reads four digits.
func hex(text []byte) (r rune) {
	if len(text) < 4 {
		return utf8.RuneError
	}
	for _, c := range text[:4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return utf8.RuneError
		}
		r = r<<4 | rune(c)
	}
	return r
}
