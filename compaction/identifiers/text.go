package identifiers

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Text is all that events say, a piece a line: texts, names, the values in the arguments of
// calls and in responses, and messages of errors. Thoughts and the bytes of files are left
// out, and so are nil events.
func Text(events ...*patch.Event) string {
	var b strings.Builder
	for _, e := range events {
		if e == nil {
			continue
		}
		for _, p := range e.Content().Parts() {
			if p.Thought() {
				continue
			}
			switch p.Kind() {
			case patch.PartText, patch.PartCode, patch.PartCodeResult:
				line(&b, p.Text())
			case patch.PartCall:
				line(&b, p.Name())
				values(&b, p.Args())
			case patch.PartResponse:
				line(&b, p.Name())
				values(&b, p.Response())
			case patch.PartOther:
				values(&b, p.Value())
			default:
				line(&b, p.Name())
				line(&b, p.MIMEType())
				line(&b, p.URI())
			}
		}
		if message, ok := e.Field("errorMessage"); ok {
			values(&b, message)
		}
	}
	return b.String()
}

// Values is the strings, names and numbers in a JSON text, a line each.
func Values(text json.RawMessage) string {
	var b strings.Builder
	values(&b, text)
	return b.String()
}

func line(b *strings.Builder, text string) {
	if text != "" {
		b.WriteString(text)
		b.WriteByte('\n')
	}
}

// values writes the strings, names and numbers in a JSON text. It decodes strings that have
// escapes alone, since most have none.
func values(b *strings.Builder, text []byte) {
	for len(text) > 0 {
		open := bytes.IndexByte(text, '"')
		if open < 0 {
			open = len(text)
		}
		if hasDigit(text[:open]) {
			for _, c := range text[:open] {
				if c == ',' { // which parts numbers here, not thousands
					c = '\n'
				}
				b.WriteByte(c)
			}
			b.WriteByte('\n')
		}
		if open == len(text) {
			return
		}
		end, escaped := open+1, false
		for end < len(text) && text[end] != '"' {
			if text[end] == '\\' {
				escaped = true
				end++
			}
			end++
		}
		if end >= len(text) { // no JSON
			return
		}
		if !escaped {
			b.Write(text[open+1 : end])
			b.WriteByte('\n')
		} else {
			var s string
			if json.Unmarshal(text[open:end+1], &s) == nil {
				line(b, s)
			}
		}
		text = text[end+1:]
	}
}

func hasDigit(text []byte) bool {
	for _, c := range text {
		if c-'0' <= 9 {
			return true
		}
	}
	return false
}
