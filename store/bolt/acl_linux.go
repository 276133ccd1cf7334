package bolt

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const accessList = "system.posix_acl_access"

// copyAccessList copies the access control list of like to file. If like has no list, copyAccessList removes the list
// of file.
func copyAccessList(file, like *os.File) error {
	to, from := fmt.Sprintf("/proc/self/fd/%d", file.Fd()), fmt.Sprintf("/proc/self/fd/%d", like.Fd())
	list := make([]byte, 64<<10) // 64 KiB is the maximum size of an extended attribute
	n, err := syscall.Getxattr(from, accessList, list)
	if err == nil {
		err = syscall.Setxattr(to, accessList, list[:n], 0)
	} else if errors.Is(err, syscall.ENODATA) {
		err = syscall.Removexattr(to, accessList) // file may have inherited a list from its directory
	}
	// ENOENT means that /proc is not mounted.
	if errors.Is(err, syscall.ENODATA) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}
