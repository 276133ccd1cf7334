package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/present"
)

// Progress is a progress bar. The bar appears once the work has taken longer than progressAfter. The zero Progress
// draws nothing.
type Progress struct {
	out   *Output // nil if the bar is not drawn
	label string
	next  time.Time // when to draw the bar again
	drawn bool
}

const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
	barColumns    = 24
)

// NewProgress starts a progress bar on an output. If the output is not a terminal, nothing is drawn. Call
// [Progress.End] before writing anything else to the output.
func NewProgress(o *Output, label string) *Progress {
	p := &Progress{label: label, next: time.Now().Add(progressAfter)}
	if o.screen {
		p.out = o
	}
	return p
}

// Count updates the bar to show how many things are done. A total of 0 means that the total is unknown.
func (p *Progress) Count(done, total int, thing string) {
	words := present.Counted(done, thing)
	if total > 0 {
		words = fmt.Sprintf("%d of %s", done, present.Counted(total, thing))
	}
	p.Update(done, total, words)
}

// Update updates the bar to show a text and the share of the work that is done. A total of 0 means that the
// total is unknown.
func (p *Progress) Update(done, total int, words string) {
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
	fmt.Fprintf(p.out.w, "\r%s\x1b[K", Cut(safe(p.label+"  "+bar+words), p.out.columns-1))
	p.out.Flush()
}

// End removes the bar from the output.
func (p *Progress) End() {
	if p.drawn {
		fmt.Fprint(p.out.w, "\r\x1b[K")
		p.out.Flush()
		p.drawn = false
	}
}

// CountLines returns a writer that writes to w and shows the number of lines on the bar. The argument thing is
// the word for a line.
func (p *Progress) CountLines(w io.Writer, thing string) *LineCounter {
	return &LineCounter{w: w, bar: p, thing: thing}
}

// LineCounter is a writer that counts the lines written through it.
type LineCounter struct {
	Lines int

	w     io.Writer
	bar   *Progress
	thing string
}

// Write writes text and counts its lines.
func (c *LineCounter) Write(text []byte) (int, error) {
	n, err := c.w.Write(text)
	c.Lines += strings.Count(string(text[:n]), "\n")
	c.bar.Count(c.Lines, 0, c.thing)
	return n, err
}
