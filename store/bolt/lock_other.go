//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package bolt

import (
	"os"
	"time"
)

// lock does nothing. bbolt locks the file itself, and its call could fail if lock had already locked the file.
func lock(*os.File, bool, time.Duration) (locked bool, err error) { return true, nil }

// release closes a file that bbolt has locked but will not close.
func release(file *os.File) { _ = file.Close() }
