//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package bolt

import (
	"os"
	"syscall"
)

// release closes a file that bbolt has locked, mapped, and will not close. The map
// keeps the file's lock alive, so closing alone is not enough.
func release(file *os.File) {
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	_ = file.Close()
}
