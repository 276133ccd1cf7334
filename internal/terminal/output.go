// Package terminal writes lines, tables, JSON documents and progress bars to a terminal, a file or a pipe.
//
// Text is escaped, so that it cannot control the terminal. If the width of the terminal is known, lines are wrapped and
// tables are fitted to the width.
package terminal

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// Output is a buffered stream. Its methods return the stream's first error. Callers may ignore the errors of all
// methods except [Output.Flush], which returns the first error too.
type Output struct {
	w       *bufio.Writer
	err     error    // error of the first document that could not be encoded
	screen  bool     // whether w is a terminal
	tty     *os.File // terminal for a pager; nil if there is none
	pager   []string
	colours bool
	columns int
	wraps   bool // whether the width is known
}

// defaultColumns is the width of an output whose width is unknown.
const defaultColumns = 120

// New returns an output that writes to w. It reads the environment variables COLUMNS, NO_COLOR, TERM and PAGER through
// env. For tests, a writer with a method Columns is treated as a terminal with that width.
func New(w io.Writer, env func(string) string) *Output {
	o := &Output{w: bufio.NewWriterSize(w, 64<<10), pager: strings.Fields(cmp.Or(env("PAGER"), "less -FRX")), columns: defaultColumns}
	columns := 0 // unknown
	switch w := w.(type) {
	case interface{ Columns() int }:
		columns, o.screen = w.Columns(), true
	case *os.File:
		columns, _, _ = term.GetSize(int(w.Fd()))
		if o.screen = term.IsTerminal(int(w.Fd())); o.screen {
			o.tty = w
		}
	}
	o.colours = o.screen && env("NO_COLOR") == "" && env("TERM") != "dumb"
	if n, err := strconv.Atoi(env("COLUMNS")); err == nil && n > 0 {
		columns = n
	}
	if columns > 0 {
		o.columns, o.wraps = columns, true
	}
	return o
}

// IsTerminal reports whether the output is a terminal.
func (o *Output) IsTerminal() bool { return o.screen }

// Columns returns the width of the output in columns.
func (o *Output) Columns() int { return o.columns }

// Flush writes the buffer to the stream.
func (o *Output) Flush() error { return cmp.Or(o.w.Flush(), o.err) }

// Raw returns the stream itself. Bytes written to it are not escaped.
func (o *Output) Raw() io.Writer { return o.w }

// JSON returns a writer for JSON text. If the output is a terminal, the writer replaces characters that could control
// the terminal by JSON escapes. Otherwise it writes the bytes unchanged.
func (o *Output) JSON() io.Writer {
	if o.screen {
		return &jsonWriter{w: o.w}
	}
	return o.w
}

// Write escapes text and writes it. It does not escape newlines and tabs.
func (o *Output) Write(text []byte) (int, error) {
	o.w.WriteString(present.EscapeUnless(func(r rune) bool { return r == '\n' || r == '\t' || !controls(r) }, string(text)))
	return len(text), nil // Flush returns the error later
}

// Line writes its arguments as a line. [Painted] texts are written unchanged. Other values are formatted by
// [fmt.Sprint] and escaped. The text may contain newlines. If the width is known, longer lines are wrapped.
func (o *Output) Line(texts ...any) error {
	var b strings.Builder
	for _, t := range texts {
		if p, ok := t.(Painted); ok {
			b.WriteString(string(p))
		} else {
			b.WriteString(safe(fmt.Sprint(t)))
		}
	}
	return o.row(o.wrap(b.String()))
}

// Linef writes a formatted line.
func (o *Output) Linef(format string, args ...any) error { return o.Line(fmt.Sprintf(format, args...)) }

// Lines writes each text as a line.
func (o *Output) Lines(texts []string) {
	for _, text := range texts {
		o.Line(text)
	}
}

// Document writes v as one line of JSON. A nil slice becomes an empty array, and an error becomes a string. JSON
// literals in v are not changed, except that characters that could control a terminal are escaped.
func (o *Output) Document(v any) error {
	err := json.MarshalWrite(&jsonWriter{w: o.w}, v, errorsAsText, json.Deterministic(true), jsontext.PreserveRawStrings(true))
	o.err = cmp.Or(o.err, err)
	return cmp.Or(err, o.w.WriteByte('\n'))
}

var errorsAsText = json.WithMarshalers(json.MarshalFunc(func(err error) ([]byte, error) { return json.Marshal(err.Error()) }))

// row writes a line without wrapping it.
func (o *Output) row(text Painted) error {
	o.w.WriteString(string(text))
	return o.w.WriteByte('\n') // the bufio.Writer returns its first error here
}

// Page flushes the buffer and calls do. On a terminal, it shows the output of do in a pager. The environment variable
// PAGER names the pager. The default is less, which exits at once if the text fits on the screen. If the pager cannot
// be started, the output goes to the terminal.
func (o *Output) Page(ctx context.Context, do func() error) error {
	if o.tty == nil || len(o.pager) == 0 {
		return do()
	}
	cmd := exec.CommandContext(ctx, o.pager[0], o.pager[1:]...)
	cmd.Stdout, cmd.Stderr = o.tty, os.Stderr
	if err := o.Flush(); err != nil { // lines that were written earlier do not go to the pager
		return err
	}
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return do()
	}
	o.w.Reset(in)
	err = errors.Join(do(), o.Flush(), in.Close(), cmd.Wait())
	o.w.Reset(o.tty)
	return err
}
