//go:build unix

package bolt

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// copyOwnership gives a new file the owner, group, access control list and mode of another file. If the user may not
// change the owner, the new file gets only the group, the list and the mode. The former owner can then still use the
// file through the group.
func copyOwnership(file, like *os.File) error {
	info, err := like.Stat()
	if err != nil {
		return err
	}
	of := info.Sys().(*syscall.Stat_t)
	err = file.Chown(int(of.Uid), int(of.Gid))
	if errors.Is(err, os.ErrPermission) {
		err = file.Chown(-1, int(of.Gid))
	}
	if err == nil {
		err = copyAccessList(file, like)
	}
	if err == nil {
		err = file.Chmod(info.Mode().Perm())
	}
	if err != nil {
		return fmt.Errorf("set the group, access list and mode of the new file to those of the old file: %w", err)
	}
	return nil
}
