package syncdir

import (
	"errors"
	"io/fs"
	"os"
)

// Named replaces the temporary name in an error by the final path. Use it for files that are written under a
// temporary name, which means nothing to a user.
func Named(err error, path string) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		failed.Path = path
	}
	if failed := (*os.LinkError)(nil); errors.As(err, &failed) {
		failed.Old = path
	}
	return err
}
