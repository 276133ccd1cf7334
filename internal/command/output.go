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

// output is a buffered stream that knows whether a person looks at it. Nothing that it
// writes can drive a terminal but its own colours and its progress bar: see drives.
type output struct {
	w       *bufio.Writer
	screen  bool     // a terminal
	tty     *os.File // the terminal, for a pager; nil if there is none
	colours bool
	columns int
	wraps   bool  // long lines: a person reads them in columns
	json    *bool // problems are JSON; nil: they are not
}

// Columns of output that is no terminal.
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

// Terminals with fewer columns than this are not written for.
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

// problem writes that something went wrong.
func (o *output) problem(text string) error {
	if o.json != nil && *o.json {
		return o.document(struct {
			Error string `json:"error"`
		}{text})
	}
	return o.line(o.paint(red, "patchlog:"), " ", present.Printable(text))
}

// lines writes lines of text.
func (o *output) lines(texts []string) {
	for _, text := range texts {
		o.line(text)
	}
}

func (o *output) linef(format string, args ...any) error {
	return o.line(fmt.Sprintf(format, args...))
}

// Write writes text of the command's own, such as its help. Its tabs stay.
func (o *output) Write(text []byte) (int, error) {
	o.w.WriteString(present.EscapeUnless(func(r rune) bool { return r == '\n' || r == '\t' || !drives(r) }, string(text)))
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

// cell is a field of a table. Its text is printable.
type cell struct {
	text  string
	style style
}

// table is rows of cells in columns. On a narrow terminal columns are left out, and then the wide one is cut.
type table struct {
	heads []string
	right []bool // by column: numbers stand at the right
	wide  int    // the column that is cut: the last one, unless set
	least int    // columns are left out as long as the wide one has fewer columns of the terminal than this
	drops []int  // columns that may be left out, in this order
	rows  []row
}

// row is a row of a table, with the lines that stand below it.
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

// leastLast is the least width of the wide column, however narrow the terminal.
const leastLast = 24

// fit returns the widths of the columns that are shown, and 0 for others, so that the wide one has what a terminal
// leaves to it.
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
		if rest() < min(widths[t.wide], t.least) {
			widths[n] = 0
		}
	}
	widths[t.wide] = min(widths[t.wide], max(rest(), leastLast))
	return widths
}

// Blanks between columns.
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

// rows writes figures with their names.
func (o *output) rows(rows []present.Row) error {
	t := newTable("", "")
	for _, r := range rows {
		t.add(cell{r.Name, dim}, cell{r.Text, plain})
	}
	return o.table(t)
}

// cells returns a row as a line.
func (o *output) cells(row []cell, widths []int, t *table) painted {
	var b strings.Builder
	gap := 0 // blanks that are due before the next text
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

// document writes v as one line of JSON, by the tags of its fields. A nil slice is an empty array, and errors are strings.
// Literals are unchanged, except that characters that can control a terminal are escaped.
func (o *output) document(v any) error {
	w := &safeJSON{w: o.w}
	if err := json.MarshalWrite(w, v, errorsAsText, json.Deterministic(true), jsontext.PreserveRawStrings(true)); err != nil {
		return err
	}
	return o.w.WriteByte('\n')
}

var errorsAsText = json.WithMarshalers(json.MarshalFunc(func(err error) ([]byte, error) { return json.Marshal(err.Error()) }))

// receipt writes what a command did: a document with --json, else a line.
func (a *app) receipt(document any, format string, args ...any) error {
	if a.json {
		return a.out.document(document)
	}
	return a.out.linef(format, args...)
}

// terminal reports whether w is a terminal, and how many columns it has; 0 means that
// it does not say.
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

// paged runs a command and shows its output in a pager, if the output is a terminal and there is a pager: less, or the
// command in the environment variable PAGER. less does not wait if the text fits on the screen.
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

// progress draws a bar on standard error while long work goes on, if that is a
// terminal. Work that is soon done shows none.
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

// progress starts a bar. end must be called before anything else is written.
func (a *app) progress(label string) *progress {
	p := &progress{label: label, next: time.Now().Add(progressAfter)}
	if a.errs.screen {
		p.out = a.errs
	}
	return p
}

// quietProgress is progress for a command that writes to standard output meanwhile: a bar
// would be drawn into it on a terminal.
func (a *app) quietProgress(label string) *progress {
	p := a.progress(label)
	if a.out.screen {
		p.out = nil
	}
	return p
}

// update says how far the work is: done of total, and what that means in words. A
// total of 0 is not known.
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

// sessions is update for work of which all sessions are the total.
func (p *progress) sessions(done, all int) {
	p.update(int64(done), int64(all), fmt.Sprintf("%d of %s", done, present.Counted(all, "session")))
}

// end takes the bar away.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out.w, "\r\x1b[K")
		p.out.flush()
		p.drawn = false
	}
}

// countingLines counts the lines that are written through it, and tells after.
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
