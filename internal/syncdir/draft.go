package syncdir

import (
	"errors"
	"io/fs"
	"os"
)

// Named replaces the path in an error by path. If a file is written under a temporary name, Named makes the error
// show the name that the user knows.
func Named(err error, path string) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		failed.Path = path
	}
	if failed := (*os.LinkError)(nil); errors.As(err, &failed) {
		failed.Old = path
	}
	return err
}
