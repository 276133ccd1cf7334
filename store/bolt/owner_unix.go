//go:build unix

package bolt

import (
	"os"
	"syscall"
)

// own gives a new file to the owner and the group of another one.
func own(file *os.File, like os.FileInfo) error {
	of := like.Sys().(*syscall.Stat_t)
	return file.Chown(int(of.Uid), int(of.Gid))
}
