package command

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// drives reports whether a character, written as it is, could make a terminal do or show
// something else than the text says: a control character (of C0 or C1, or DEL), one that
// turns the direction of the text around it, or a line separator.
func drives(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// safeText returns the text with an escape for each character that could drive a terminal, and for each byte that is not
// UTF-8. Lines stay lines.
func safeText(text string) string {
	return present.EscapeUnless(func(r rune) bool { return r == '\n' || !drives(r) }, text)
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
