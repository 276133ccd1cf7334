// Package oneline converts text from other programs to one short line.
package oneline

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape escapes all characters that can end a line or control a terminal: control characters, U+2028 and U+2029.
func Escape(s string) string {
	clean := true
	for _, r := range s {
		if breaksLine(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteByte(' ')
		case breaksLine(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func breaksLine(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}

// Truncate cuts a text to limit runes, and appends the number of runes that it removed. A limit of 0 or less means no
// limit.
func Truncate(s string, limit int) string {
	if limit <= 0 || len(s) <= limit {
		return s
	}
	n := utf8.RuneCountInString(s)
	if n <= limit {
		return s
	}
	end := 0
	for range limit {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return fmt.Sprintf("%s [… %d more characters]", s[:end], n-limit)
}
