package present

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns the text as one line of characters that show: white space becomes a blank,
// several of it one and what leads or ends the text none; what is not printable becomes an
// escape, such as \u001b, and a byte that is not UTF-8 one such as \xff. So it can neither drive
// a terminal nor turn the direction of what is around it.
func Printable(text string) string {
	return PrintableUpTo(text, len(text))
}

// PrintableUpTo is [Printable] for the first runes of the text, at least most of them. What it
// returns may be longer, since an escape is.
func PrintableUpTo(text string, most int) string {
	var b strings.Builder
	blank := true // leading white space goes
	n := 0
	for i, r := range text {
		if n >= most {
			break
		}
		n++
		if '\t' <= r && r <= '\r' || unicode.Is(unicode.Zs, r) {
			if !blank {
				b.WriteByte(' ')
			}
			blank = true
			continue
		}
		writePrintable(&b, r, text[i:])
		blank = false
	}
	return strings.TrimSuffix(b.String(), " ")
}

// writePrintable writes r, decoded from the start of text, as it is or as an escape.
func writePrintable(b *strings.Builder, r rune, text string) {
	if unicode.IsPrint(r) && !isBadByte(r, text) {
		b.WriteRune(r)
	} else {
		b.WriteString(escape(r, text))
	}
}

// EscapeUnless returns a text with an escape for each character that is not to be shown as it is, and for each byte
// that is not UTF-8: such as \u001b and \xff.
func EscapeUnless(shown func(r rune) bool, text string) string {
	var b strings.Builder
	for i, r := range text {
		if shown(r) && !isBadByte(r, text[i:]) {
			b.WriteRune(r)
		} else {
			b.WriteString(escape(r, text[i:]))
		}
	}
	return b.String()
}

func escape(r rune, text string) string {
	switch {
	case isBadByte(r, text):
		return fmt.Sprintf(`\x%02x`, text[0])
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// isBadByte reports whether r, decoded from the start of text, stands for a byte that is not UTF-8.
func isBadByte(r rune, text string) bool {
	return r == utf8.RuneError && !strings.HasPrefix(text, string(r))
}

// PrintableMarks is [Printable] for a text in one line, parts of which are marked: where they
// begin and end, in bytes, ascending and within the text. It returns where the same parts are in
// what it returns. Blanks stay.
func PrintableMarks(text string, marks [][2]int) (string, [][2]int) {
	var b strings.Builder
	at := 0
	upTo := func(end int) int {
		for i, r := range text[at:end] {
			writePrintable(&b, r, text[at+i:end])
		}
		at = end
		return b.Len()
	}
	moved := make([][2]int, len(marks))
	for i, m := range marks {
		moved[i] = [2]int{upTo(m[0]), upTo(m[1])}
	}
	upTo(len(text))
	return b.String(), moved
}
