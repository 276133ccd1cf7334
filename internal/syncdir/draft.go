package syncdir

import (
	"errors"
	"io/fs"
	"os"
)

// Named returns an error of a draft as an error of the file that the draft is to become: the temporary name says nothing to a user.
func Named(err error, path string) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		failed.Path = path
	}
	if failed := (*os.LinkError)(nil); errors.As(err, &failed) {
		failed.Old = path
	}
	return err
}
