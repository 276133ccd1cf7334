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

// Piece is a stretch of a text, of which all is marked or nothing.
type Piece struct {
	Text string // printable
	Mark bool
}

// Pieces returns a text of one line as pieces: those that are marked, and those between. Marks say where they begin and
// end, in bytes, ascending and within the text. Blanks stay.
func Pieces(text string, marks [][2]int) []Piece {
	var pieces []Piece
	at := 0
	add := func(end int, mark bool) {
		if end > at {
			pieces = append(pieces, Piece{EscapeUnless(unicode.IsPrint, text[at:end]), mark})
			at = end
		}
	}
	for _, m := range marks {
		add(m[0], false)
		add(m[1], true)
	}
	add(len(text), false)
	return pieces
}
