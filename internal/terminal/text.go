package terminal

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// Style is a terminal code for a colour or a font weight.
type Style string

// Styles of text
const (
	Plain   Style = ""
	Bold    Style = "1"
	Dim     Style = "2"
	Red     Style = "31"
	Green   Style = "32"
	Yellow  Style = "33"
	Magenta Style = "35"
	Cyan    Style = "36"
)

// Painted is escaped text that may contain colour codes.
type Painted string

// Paint escapes a text. If the output has colours, it also adds the style.
func (o *Output) Paint(s Style, text string) Painted {
	text = safe(text)
	if !o.colours || s == Plain || text == "" {
		return Painted(text)
	}
	return Painted("\x1b[" + string(s) + "m" + text + "\x1b[0m")
}

// colourCode matches the codes that [Output.Paint] adds.
var colourCode = regexp.MustCompile("\x1b\\[[0-9]*m")

// terminalWidth computes the width of a character in columns: 0, 1 or 2. The result does not depend on the
// environment.
var terminalWidth runewidth.Condition

// Width returns the width of a text in columns.
func Width(text string) int { return terminalWidth.StringWidth(text) }

const ellipsis = "…"

// Cut returns text, shortened to at most most columns. A shortened text ends with an ellipsis.
func Cut(text string, most int) string {
	if Width(text) <= most {
		return text
	}
	return strings.TrimRight(terminalWidth.Truncate(text, most-1, ""), " ") + ellipsis
}

// Highlight joins the pieces of a text and makes the marked pieces bold. The argument most limits the width of the
// result.
func (o *Output) Highlight(pieces []present.Piece, most int) Painted {
	columns := 0
	for _, p := range pieces {
		columns += Width(p.Text)
	}
	end := ""
	if columns > most {
		most, end = most-1, ellipsis
	}
	var b strings.Builder
	for _, p := range pieces {
		style := Plain
		if p.Mark {
			style = Bold
		}
		short := terminalWidth.Truncate(p.Text, most, "")
		most -= Width(short)
		b.WriteString(string(o.Paint(style, short)))
		if short != p.Text {
			break
		}
	}
	return Painted(b.String() + end)
}

// leastColumns is the minimum width at which lines are wrapped.
const leastColumns = 40

// wrap wraps an escaped text if the width of the output is known.
func (o *Output) wrap(text string) Painted {
	if o.wraps {
		text = Wrap(text, max(o.columns, leastColumns), "  ")
	}
	return Painted(text)
}

// Wrap breaks lines that are wider than most, at spaces. A continuation line has the indentation of its first line,
// followed by indent.
func Wrap(text string, most int, indent string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		lead := line[:len(line)-len(strings.TrimLeft(line, " "))]
		words := strings.SplitAfter(line[len(lead):], " ")
		words[0] = lead + words[0]
		indent, columns, blank := lead+indent, 0, ""
		for n, word := range words {
			text := strings.TrimRight(word, " ")
			if n > 0 && columns+Width(colourCode.ReplaceAllString(strings.TrimRight(text, "\n"), "")) > most {
				b.WriteString("\n" + indent)
				columns = len(indent)
			} else {
				b.WriteString(blank)
			}
			b.WriteString(text)
			columns, blank = columns+Width(colourCode.ReplaceAllString(word, "")), word[len(text):]
		}
	}
	return b.String()
}

// controls reports whether a character could control a terminal or change how other text is shown. Such characters are
// control characters (C0, C1 and DEL), characters that change the direction of text, and line separators.
func controls(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// safe escapes characters that could control a terminal, except newlines, and bytes that are not UTF-8.
func safe(text string) string {
	return present.EscapeUnless(func(r rune) bool { return r == '\n' || !controls(r) }, text)
}

// jsonWriter writes JSON text to w and escapes characters that could control a terminal. The value of the JSON does not
// change.
type jsonWriter struct {
	w    io.Writer
	rest []byte // the first bytes of an incomplete character
}

func (j *jsonWriter) Write(text []byte) (int, error) {
	n := len(text)
	text, j.rest = append(j.rest, text...), nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && !utf8.FullRune(text):
			j.rest = text
			size = len(text)
		case r >= 0x7f && controls(r): // in JSON, lower control characters stand only between values, or are escaped
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	if _, err := j.w.Write(out); err != nil {
		return 0, err
	}
	return n, nil
}
