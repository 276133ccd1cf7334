package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// output is a buffered stream that knows whether a person looks at it.
type output struct {
	w       *bufio.Writer
	enc     *json.Encoder
	screen  bool // a terminal
	colours bool
	columns int
}

// Columns of output that is no terminal.
const defaultColumns = 120

func newOutput(w io.Writer, env func(string) string) *output {
	o := &output{w: bufio.NewWriterSize(w, 64<<10), columns: defaultColumns}
	o.enc = json.NewEncoder(o.w)
	o.enc.SetEscapeHTML(false)
	if columns, ok := terminal(w); ok {
		o.screen = true
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

// line writes a line of text.
func (o *output) line(text ...string) error {
	for _, t := range text {
		o.w.WriteString(t)
	}
	return o.w.WriteByte('\n') // a bufio.Writer keeps its first error
}

func (o *output) linef(format string, args ...any) error {
	return o.line(fmt.Sprintf(format, args...))
}

// document writes v as one line of JSON. Literals and characters stay as they are.
func (o *output) document(v any) error { return o.enc.Encode(v) }

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

func (o *output) paint(s style, text string) string {
	if !o.colours || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
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
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], string(r)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case '\t' <= r && r <= '\r', unicode.Is(unicode.Zs, r):
			if !blank {
				b.WriteByte(' ')
			}
			blank = true
			continue
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		blank = false
	}
	return strings.TrimSuffix(b.String(), " ")
}

// cut returns the text with at most most runes; what is cut off shows as "…".
func cut(text string, most int) string {
	n := 0
	keep := 0 // bytes of the first most-1 runes
	for i := range text {
		if n == most-1 {
			keep = i
		}
		if n++; n > most {
			return strings.TrimRight(text[:keep], " ") + "…"
		}
	}
	return text
}

// grouped writes a number with commas between thousands.
func grouped[N int | int64 | uint64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if s[0] == '-' {
		return "-" + digits
	}
	return digits
}

// counted writes a number of things.
func counted[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return grouped(n) + " " + thing + "s"
}
