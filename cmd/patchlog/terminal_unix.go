//go:build linux || darwin

package main

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// terminal reports whether w is a terminal, and how many columns it has; 0 means that
// it does not say.
func terminal(w io.Writer) (columns int, ok bool) {
	switch w := w.(type) {
	case interface{ terminalColumns() int }:
		return w.terminalColumns(), true
	case *os.File:
		var size struct{ rows, columns, x, y uint16 }
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, w.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
		return int(size.columns), errno == 0
	}
	return 0, false
}
