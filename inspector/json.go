package inspector

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// deepest is the level up to which JSON is indented, so that lines do not become longer than what they say.
const deepest = 40

// indentJSON is JSON for people to read, which ends when it has most bytes or a few more. read is how many bytes of the
// text it took. Escapes of letters and signs in strings are undone; those of quotes, line breaks and control characters
// stay. From where the text is no JSON on, it stays as it is.
func indentJSON(text string, most int) (out string, read int) {
	var b bytes.Buffer
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	var open []struct { // the arrays and objects around the token
		object bool
		tokens int
	}
	line := func() { b.WriteString("\n" + strings.Repeat("  ", min(len(open), deepest))) }
	for b.Len() < most {
		token, err := d.Token()
		if err != nil {
			b.WriteString(strings.TrimRight(text[read:], " \t\r\n"))
			read = len(text)
			break
		}
		read = int(d.InputOffset())
		last := len(open) - 1
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == ']' || delim == '}') {
			empty := open[last].tokens == 0
			if open = open[:last]; !empty {
				line()
			}
			b.WriteString(delim.String())
			continue
		}
		switch {
		case last < 0:
		case open[last].object && open[last].tokens%2 == 1:
			b.WriteString(": ")
		default:
			if open[last].tokens > 0 {
				b.WriteByte(',')
			}
			line()
		}
		if last >= 0 {
			open[last].tokens++
		}
		if isDelim {
			b.WriteString(delim.String())
			open = append(open, struct {
				object bool
				tokens int
			}{object: delim == '{'})
			continue
		}
		_ = e.Encode(token) // it is a string, a number, a boolean or null
		b.Truncate(b.Len() - 1)
	}
	if over := b.Len() - most - 2*deepest; over > 0 {
		b.Truncate(atRune(b.String(), most))
		read = min(read, len(text)-1)
	}
	return b.String(), read
}

var jsonEscape = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.|$)`)

// withoutEscapes is JSON of the same length with blanks in place of the escapes in it: where words begin and end in it is
// where they do in what it says.
func withoutEscapes(text string) string {
	return jsonEscape.ReplaceAllStringFunc(text, func(escape string) string { return strings.Repeat(" ", len(escape)) })
}
