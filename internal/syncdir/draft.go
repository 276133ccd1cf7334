package syncdir

import (
	"errors"
	"io/fs"
	"os"
)

// Named replaces the temporary name in a draft's error by the final path, since the temporary name means nothing to a
// user.
func Named(err error, path string) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		failed.Path = path
	}
	if failed := (*os.LinkError)(nil); errors.As(err, &failed) {
		failed.Old = path
	}
	return err
}
