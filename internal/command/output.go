package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// output is a buffered stream that knows whether it is a terminal. Except for its own colours and its progress bar, it
// writes nothing that can control a terminal: see drives.
type output struct {
	w       *bufio.Writer
	screen  bool     // a terminal
	tty     *os.File // the terminal, for a pager; nil if there is none
	colours bool
	columns int
	wraps   bool  // long lines are broken
	json    *bool // whether problems are JSON; nil means no
}

// defaultColumns is the width of output that is not a terminal.
const defaultColumns = 120

func newOutput(w io.Writer, env func(string) string) *output {
	o := &output{w: bufio.NewWriterSize(w, 64<<10), columns: defaultColumns}
	if columns, ok := terminal(w); ok {
		o.screen = true
		o.tty, _ = w.(*os.File)
		o.colours = env("NO_COLOR") == "" && env("TERM") != "dumb"
		if columns > 0 {
			o.columns, o.wraps = columns, true
		}
	}
	if n, err := strconv.Atoi(env("COLUMNS")); err == nil && n > 0 {
		o.columns, o.wraps = n, true
	}
	return o
}

func (o *output) flush() error { return o.w.Flush() }

// line writes a line of texts: strings, which may have lines of their own, and what
// [output.paint] made. A line that is longer than the terminal is broken at a space.
func (o *output) line(texts ...any) error {
	var b strings.Builder
	for _, t := range texts {
		if p, ok := t.(painted); ok {
			b.WriteString(string(p))
		} else {
			b.WriteString(safeText(fmt.Sprint(t)))
		}
	}
	return o.row(o.fill(b.String()))
}

// fill breaks a safe text that is longer than the terminal.
func (o *output) fill(text string) painted {
	if o.wraps {
		text = wrap(text, max(o.columns, leastColumns), "  ")
	}
	return painted(text)
}

// row writes a line as it is.
func (o *output) row(text painted) error {
	o.w.WriteString(string(text))
	return o.w.WriteByte('\n') // a bufio.Writer keeps its first error
}

// leastColumns is the smallest width that lines are broken for.
const leastColumns = 40

// wrap breaks lines that have more than most columns at spaces. A line that a break begins is indented like the line that
// was broken, and by indent more.
func wrap(text string, most int, indent string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		lead := line[:len(line)-len(strings.TrimLeft(line, " "))]
		words := strings.SplitAfter(line[len(lead):], " ")
		words[0] = lead + words[0]
		indent, columns, blank := lead+indent, 0, ""
		for n, word := range words {
			if n > 0 && columns+columnsOf(colourCode.ReplaceAllString(strings.TrimRight(word, " \n"), "")) > most {
				b.WriteString("\n" + indent)
				columns = len(indent)
			} else {
				b.WriteString(blank)
			}
			text := strings.TrimRight(word, " ")
			b.WriteString(text)
			columns, blank = columns+columnsOf(colourCode.ReplaceAllString(word, "")), word[len(text):]
		}
	}
	return b.String()
}

// lineEnd matches the end of a line that the next one goes on with: the next line is neither empty nor indented.
var lineEnd = regexp.MustCompile(`(\S)\n([^\n ])`)

// joinLines makes one line of each paragraph, for wrap. Indented lines stay as they are.
func joinLines(text string) string { return lineEnd.ReplaceAllString(text, "$1 $2") }

// colourCode matches what [output.paint] writes around a text.
var colourCode = regexp.MustCompile("\x1b\\[[0-9]*m")

// problem writes an error.
func (o *output) problem(text string) error {
	if o.json != nil && *o.json {
		return o.document(struct {
			Error string `json:"error"`
		}{text})
	}
	return o.line(o.paint(red, "patchlog:"), " ", present.Printable(text))
}

// lines writes each text as a line.
func (o *output) lines(texts []string) {
	for _, text := range texts {
		o.line(text)
	}
}

func (o *output) linef(format string, args ...any) error {
	return o.line(fmt.Sprintf(format, args...))
}

// Write writes text of cobra's, such as a completion script. Its tabs stay.
func (o *output) Write(text []byte) (int, error) {
	o.w.WriteString(present.EscapeUnless(func(r rune) bool { return r == '\n' || r == '\t' || !drives(r) }, string(text)))
	return len(text), nil // a bufio.Writer keeps its first error, for flush
}

// style is a terminal's code for a colour or weight; empty is plain.
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

// painted is safe text, possibly with colour codes.
type painted string

func (o *output) paint(s style, text string) painted {
	text = safeText(text)
	if !o.colours || s == plain || text == "" {
		return painted(text)
	}
	return painted("\x1b[" + string(s) + "m" + text + "\x1b[0m")
}

// terminalWidth counts the columns that characters take on a terminal: none, one or two. It does not depend on the
// environment.
var terminalWidth runewidth.Condition

func columnsOf(text string) int { return terminalWidth.StringWidth(text) }

const ellipsis = "…"

// cut shortens the text to at most most columns, with an ellipsis at the end.
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

// drives reports whether a character could control a terminal or falsify what it shows: a control character (C0, C1 or
// DEL), one that changes the direction of text, or a line separator.
func drives(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// safeText escapes each character that drives a terminal, except newlines, and each byte that is not UTF-8.
func safeText(text string) string {
	return present.EscapeUnless(func(r rune) bool { return r == '\n' || !drives(r) }, text)
}

// safeJSON writes JSON text to w and escapes each character that drives a terminal. The JSON's value does not change.
type safeJSON struct {
	w    io.Writer
	rest []byte // the first bytes of a character whose end is not written yet
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
		case r >= 0x7f && drives(r): // lower ones are between values, or already escaped
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

// cell is a field of a table. Its text is printable.
type cell struct {
	text  string
	style style
}

// table is rows of cells in columns. On a narrow terminal, columns are dropped, and then the wide one is cut, unless it has
// to stay whole.
type table struct {
	heads []string
	right []bool // the columns that are aligned at the right, such as numbers
	wide  int    // the column that is cut; by default the last one
	least int    // columns are dropped while the wide one is narrower than this
	whole bool   // the wide column is never cut, so that its texts can be copied; columns are dropped until it fits
	drops []int  // the columns that may be dropped, in this order
	rows  []row
}

// row is a row of a table, with lines below it.
type row struct {
	cells []cell
	notes []painted
}

func newTable(heads ...string) *table {
	return &table{heads: heads, right: make([]bool, len(heads)), wide: len(heads) - 1}
}

func (t *table) add(cells ...cell) {
	t.rows = append(t.rows, row{cells: cells})
}

// note adds a line below the last row.
func (t *table) note(text painted) {
	last := &t.rows[len(t.rows)-1]
	last.notes = append(last.notes, text)
}

// leastLast is the minimum width of the wide column on any terminal.
const leastLast = 24

// fit returns the widths of the columns on a terminal: 0 for dropped ones, and the remaining space for the wide one.
func (t *table) fit(columns int, widths []int) []int {
	widths = slices.Clone(widths)
	rest := func() int {
		rest := columns
		for i, w := range widths {
			if i != t.wide && w > 0 {
				rest -= w + columnGap
			}
		}
		return rest
	}
	for _, n := range t.drops {
		if need := widths[t.wide]; rest() < need && (t.whole || rest() < t.least) {
			widths[n] = 0
		}
	}
	if !t.whole {
		widths[t.wide] = min(widths[t.wide], max(rest(), leastLast))
	}
	return widths
}

// columnGap is the number of blanks between columns.
const columnGap = 2

func (o *output) table(t *table) error {
	widths := make([]int, len(t.heads))
	for _, row := range t.rows {
		for i, c := range row.cells {
			widths[i] = max(widths[i], columnsOf(c.text))
		}
	}
	heads := make([]cell, len(t.heads))
	rows := t.rows
	for i, h := range t.heads {
		heads[i] = cell{h, dim}
		if widths[i] > 0 { // a column without any text is left out
			widths[i] = max(widths[i], columnsOf(h))
		}
	}
	if strings.Join(t.heads, "") != "" {
		rows = append([]row{{cells: heads}}, rows...)
	}
	widths = t.fit(o.columns, widths)
	var err error // the stream keeps its first one
	for _, row := range rows {
		for _, line := range append([]painted{o.cells(row.cells, widths, t)}, row.notes...) {
			err = o.row(line)
		}
	}
	return err
}

// rows writes names and values in two columns. Long values go on below themselves.
func (o *output) rows(rows []present.Row) error {
	width := 0
	for _, r := range rows {
		width = max(width, columnsOf(r.Name)+columnGap)
	}
	var err error // the stream keeps its first one
	for _, r := range rows {
		text := safeText(r.Text)
		if most := o.columns - width; o.wraps {
			text = strings.ReplaceAll(wrap(text, max(most, leastLast), ""), "\n", "\n"+strings.Repeat(" ", width))
		}
		err = o.row(o.paint(dim, r.Name) + painted(strings.Repeat(" ", width-columnsOf(r.Name))+text))
	}
	return err
}

// cells returns a row as a line.
func (o *output) cells(row []cell, widths []int, t *table) painted {
	var b strings.Builder
	gap := 0 // blanks to write before the next text
	for i, c := range row {
		if widths[i] == 0 {
			continue
		}
		text := c.text
		if i == t.wide {
			text = cut(text, widths[i])
		}
		space := max(widths[i]-columnsOf(text), 0)
		if t.right[i] {
			gap, space = gap+space, 0
		}
		if text != "" {
			b.WriteString(strings.Repeat(" ", gap))
			b.WriteString(string(o.paint(c.style, text)))
			gap = 0
		}
		gap += space + columnGap
	}
	return painted(b.String())
}

// document writes v as one line of JSON. A nil slice is an empty array, and an error is a string. Literals are kept as they
// are, except that characters that drive a terminal are escaped.
func (o *output) document(v any) error {
	w := &safeJSON{w: o.w}
	if err := json.MarshalWrite(w, v, errorsAsText, json.Deterministic(true), jsontext.PreserveRawStrings(true)); err != nil {
		return err
	}
	return o.w.WriteByte('\n')
}

var errorsAsText = json.WithMarshalers(json.MarshalFunc(func(err error) ([]byte, error) { return json.Marshal(err.Error()) }))

// receipt writes the result of a command: a document with --json, else a line.
func (a *app) receipt(document any, format string, args ...any) error {
	if a.json {
		return a.out.document(document)
	}
	return a.out.linef(format, args...)
}

// terminal reports whether w is a terminal, and how many columns it has; 0 means unknown.
func terminal(w io.Writer) (columns int, ok bool) {
	switch w := w.(type) {
	case interface{ terminalColumns() int }:
		return w.terminalColumns(), true
	case *os.File:
		columns, _, _ = term.GetSize(int(w.Fd()))
		return columns, term.IsTerminal(int(w.Fd()))
	}
	return 0, false
}

// paged calls do and, on a terminal, shows its output in a pager: less, or the command in the environment variable PAGER.
// less does not wait if the text fits on the screen.
func (a *app) paged(ctx context.Context, do func() error) error {
	pager := strings.Fields(cmp.Or(a.env("PAGER"), "less -FRX"))
	if a.out.tty == nil || a.json || len(pager) == 0 {
		return do()
	}
	cmd := exec.CommandContext(ctx, pager[0], pager[1:]...)
	cmd.Stdout, cmd.Stderr = a.out.tty, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return do()
	}
	a.out.w.Reset(in)
	err = errors.Join(do(), a.out.flush(), in.Close(), cmd.Wait())
	a.out.w.Reset(a.out.tty)
	return err
}

// progress draws a bar on standard error, if that is a terminal, once work has taken progressAfter.
type progress struct {
	out   *output // nil if nothing is drawn
	label string
	next  time.Time // when to draw again
	drawn bool
}

const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
	barColumns    = 24
)

// progress starts a bar. Call end before writing anything else.
func (a *app) progress(label string) *progress {
	p := &progress{label: label, next: time.Now().Add(progressAfter)}
	if a.errs.screen {
		p.out = a.errs
	}
	return p
}

// quietProgress is progress for a command that meanwhile writes to standard output. If that is a terminal, there is no bar.
func (a *app) quietProgress(label string) *progress {
	p := a.progress(label)
	if a.out.screen {
		p.out = nil
	}
	return p
}

// update draws the progress: done of total, and that in words. A total of 0 means unknown.
func (p *progress) update(done, total int64, words string) {
	if p.out == nil || time.Now().Before(p.next) {
		return
	}
	p.next = time.Now().Add(progressEvery)
	p.drawn = true
	bar := ""
	if total > 0 {
		share := min(max(float64(done)/float64(total), 0), 1)
		full := int(share * barColumns)
		bar = fmt.Sprintf("[%s%s] %3.0f%%  ", strings.Repeat("#", full), strings.Repeat(".", barColumns-full), share*100)
	}
	text := cut(safeText(p.label+"  "+bar+words), p.out.columns-1)
	fmt.Fprintf(p.out.w, "\r%s\x1b[K", text)
	p.out.flush()
}

// sessions is update for work that is counted in sessions.
func (p *progress) sessions(done, all int) {
	p.update(int64(done), int64(all), fmt.Sprintf("%d of %s", done, present.Counted(all, "session")))
}

// end removes the bar.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out.w, "\r\x1b[K")
		p.out.flush()
		p.drawn = false
	}
}

// countingLines counts the lines written to w, and calls after with their number.
type countingLines struct {
	w     io.Writer
	n     int64
	after func(lines int64)
}

func (c *countingLines) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(strings.Count(string(p[:n]), "\n"))
	c.after(c.n)
	return n, err
}
