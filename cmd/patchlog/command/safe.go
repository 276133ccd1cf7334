package command

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// drives reports whether a character, written as it is, could make a terminal do or show
// something else than the text says: a control character (of C0 or C1, or DEL), one that
// turns the direction of the text around it, or a line separator.
func drives(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// safeText returns the text with an escape for each character that could drive a terminal,
// and for each byte that is not UTF-8. Lines stay lines.
func safeText(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return r != '\n' && drives(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case isBadByte(r, text[i:]):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r != '\n' && drives(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isBadByte reports whether r, decoded from the start of text, stands for a byte that is
// not UTF-8.
func isBadByte(r rune, text string) bool {
	return r == utf8.RuneError && !strings.HasPrefix(text, string(r))
}

// safeJSON passes JSON text on, with an escape for each character in it that could drive
// a terminal. What the JSON says stays the same.
type safeJSON struct {
	w    io.Writer
	rest []byte // the bytes of a character whose end has not come yet
}

func (s *safeJSON) Write(text []byte) (int, error) {
	n := len(text)
	if len(s.rest) > 0 {
		text = append(s.rest, text...)
		s.rest = nil
	}
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && !utf8.FullRune(text):
			s.rest = append([]byte(nil), text...)
			size = len(text)
		case r >= 0x7f && drives(r): // those below stand between values, or are escaped already
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	if _, err := s.w.Write(out); err != nil {
		return 0, err
	}
	return n, nil
}

// printable returns the text as one line that cannot drive a terminal: white space
// becomes a blank, and what is not printable an escape.
func printable(text string) string {
	return printableUpTo(text, len(text))
}

// printableUpTo is printable for the first runes of the text, at least most of them.
func printableUpTo(text string, most int) string {
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
	switch {
	case isBadByte(r, text):
		fmt.Fprintf(b, `\x%02x`, text[0])
	case unicode.IsPrint(r):
		b.WriteRune(r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
}

// printableMarks is printable for a text in one line, parts of which are marked: where they begin
// and end, in bytes, ascending. It returns where the same parts are in what it returns. Blanks stay.
func printableMarks(text string, marks [][2]int) (string, [][2]int) {
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
