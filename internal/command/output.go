package command

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// output is a buffered stream that knows whether a person looks at it. Nothing that it
// writes can drive a terminal but its own colours and its progress bar: see safe.go.
type output struct {
	w       *bufio.Writer
	enc     *json.Encoder
	screen  bool     // a terminal
	tty     *os.File // the terminal, for a pager; nil if there is none
	colours bool
	columns int
}

// Columns of output that is no terminal.
const defaultColumns = 120

func newOutput(w io.Writer, env func(string) string) *output {
	o := &output{w: bufio.NewWriterSize(w, 64<<10), columns: defaultColumns}
	o.enc = json.NewEncoder(&safeJSON{w: o.w})
	o.enc.SetEscapeHTML(false)
	if columns, ok := terminal(w); ok {
		o.screen = true
		o.tty, _ = w.(*os.File)
		o.colours = env("NO_COLOR") == "" && env("TERM") != "dumb"
		if columns > 0 {
			o.columns = columns
		}
	}
	if n, err := strconv.Atoi(env("COLUMNS")); err == nil && n > 0 {
		o.columns = n
	}
	return o
}

func (o *output) flush() error { return o.w.Flush() }

// line writes a line of texts: strings, which may have lines of their own, and what
// [output.paint] made.
func (o *output) line(texts ...any) error {
	for _, t := range texts {
		if p, ok := t.(painted); ok {
			o.w.WriteString(string(p))
		} else {
			o.w.WriteString(safeText(fmt.Sprint(t)))
		}
	}
	return o.w.WriteByte('\n') // a bufio.Writer keeps its first error
}

// problem writes that something went wrong.
func (o *output) problem(text string) error {
	return o.line(o.paint(red, "patchlog:"), " ", present.Printable(text))
}

func (o *output) linef(format string, args ...any) error {
	return o.line(fmt.Sprintf(format, args...))
}

// document writes v as one line of JSON. Literals stay as they are, and so do characters
// that cannot drive a terminal; those that can are written as escapes, which say the same.
func (o *output) document(v any) error { return o.enc.Encode(v) }

// Write writes text of the command's own, such as its help. Its tabs stay.
func (o *output) Write(text []byte) (int, error) {
	for i, piece := range strings.Split(string(text), "\t") {
		if i > 0 {
			o.w.WriteByte('\t')
		}
		o.w.WriteString(safeText(piece))
	}
	return len(text), nil // a bufio.Writer keeps its first error, for flush
}

// style is a terminal's code for how text looks; empty is plain.
type style string

const (
	plain   style = ""
	bold    style = "1"
	dim     style = "2"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	magenta style = "35"
	cyan    style = "36"
)

// painted is text that is safe but for the colours it has.
type painted string

func (o *output) paint(s style, text string) painted {
	text = safeText(text)
	if !o.colours || s == plain || text == "" {
		return painted(text)
	}
	return painted("\x1b[" + string(s) + "m" + text + "\x1b[0m")
}

// terminalWidth says how many columns of a terminal characters take: none, one or two.
// It does not depend on the environment.
var terminalWidth runewidth.Condition

func columnsOf(text string) int { return terminalWidth.StringWidth(text) }

const ellipsis = "…"

// cut returns the text in at most most columns; what is cut off shows as an ellipsis.
func cut(text string, most int) string {
	if columnsOf(text) <= most {
		return text
	}
	return strings.TrimRight(terminalWidth.Truncate(text, most-1, ""), " ") + ellipsis
}

// highlight returns a text in at most most columns, with the marked pieces in bold.
func (o *output) highlight(pieces []present.Piece, most int) painted {
	columns := 0
	for _, p := range pieces {
		columns += columnsOf(p.Text)
	}
	end := ""
	if columns > most {
		most, end = most-1, ellipsis
	}
	var b strings.Builder
	for _, p := range pieces {
		style := plain
		if p.Mark {
			style = bold
		}
		short := terminalWidth.Truncate(p.Text, most, "")
		most -= columnsOf(short)
		b.WriteString(string(o.paint(style, short)))
		if short != p.Text {
			break
		}
	}
	return painted(b.String() + end)
}
