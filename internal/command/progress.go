package command

import (
	"fmt"
	"io"
	"strings"
	"time"
)

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

// quiet is progress for a command that writes to standard output meanwhile: a bar
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

// end takes the bar away.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out.w, "\r\x1b[K")
		p.out.flush()
		p.drawn = false
	}
}

// counting counts the bytes that are read through it.
type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
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
