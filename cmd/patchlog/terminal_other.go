//go:build !linux && !darwin

package main

import (
	"io"
	"os"
)

// terminal reports whether w is a terminal, and how many columns it has; 0 means that
// it does not say.
func terminal(w io.Writer) (columns int, ok bool) {
	switch w := w.(type) {
	case interface{ terminalColumns() int }:
		return w.terminalColumns(), true
	case *os.File:
		info, err := w.Stat()
		return 0, err == nil && info.Mode()&os.ModeCharDevice != 0 && w.Name() != os.DevNull
	}
	return 0, false
}
