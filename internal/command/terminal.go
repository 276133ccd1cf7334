package command

import (
	"io"
	"os"

	"golang.org/x/term"
)

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
