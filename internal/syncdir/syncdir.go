// Package syncdir makes file names durable, and corrects file names in errors. Use it for files that are written
// under a temporary name and then renamed.
package syncdir

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Sync makes the names of the files in a directory durable. If the process has no permission to open the directory,
// or if the file system cannot sync directories, Sync does nothing and returns nil.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
