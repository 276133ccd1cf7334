//go:build unix

package bolt

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// own gives a new file to the owner and the group of another one.
func own(file *os.File, like os.FileInfo) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	want, ok := like.Sys().(*syscall.Stat_t)
	have, okNew := info.Sys().(*syscall.Stat_t)
	if !ok || !okNew || want.Uid == have.Uid && want.Gid == have.Gid {
		return nil
	}
	if err := file.Chown(int(want.Uid), int(want.Gid)); err != nil {
		return fmt.Errorf("the file is user %d's and group %d's, and has to stay theirs: %w", want.Uid, want.Gid, err)
	}
	return nil
}

func readOnlyFS(err error) bool { return errors.Is(err, syscall.EROFS) }
