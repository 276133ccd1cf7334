//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package bolt

import (
	"os"
	"syscall"
	"time"
)

// lock locks a file with the same system call as bbolt. When bbolt then locks the file, its call succeeds at once,
// because it uses the same descriptor.
func lock(file *os.File, exclusive bool, timeout time.Duration) (locked bool, err error) {
	how := syscall.LOCK_SH | syscall.LOCK_NB
	if exclusive {
		how = syscall.LOCK_EX | syscall.LOCK_NB
	}
	const pause = 50 * time.Millisecond
	for begun := time.Now(); ; time.Sleep(pause) {
		switch err := syscall.Flock(int(file.Fd()), how); {
		case err == nil:
			return true, nil
		case err != syscall.EWOULDBLOCK && err != syscall.EINTR:
			return false, err
		case time.Since(begun) > timeout-pause:
			return false, nil
		}
	}
}

// release unlocks and closes a file that bbolt has locked and mapped but will not close. Closing alone is not
// enough, because the memory map keeps the lock alive.
func release(file *os.File) {
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	_ = file.Close()
}
