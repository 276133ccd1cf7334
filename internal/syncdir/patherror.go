package syncdir

import (
	"errors"
	"io/fs"
	"os"
)

// ReplacePath replaces a temporary file name in err with path, the final name that the user knows.
func ReplacePath(err error, path string) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		failed.Path = path
	}
	if failed := (*os.LinkError)(nil); errors.As(err, &failed) {
		failed.Old = path
	}
	return err
}
