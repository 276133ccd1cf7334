package bolt

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const accessList = "system.posix_acl_access"

// copyAccessList makes a file's access list that of another file; without one there, it removes the file's list.
func copyAccessList(file, like *os.File) error {
	to, from := fmt.Sprintf("/proc/self/fd/%d", file.Fd()), fmt.Sprintf("/proc/self/fd/%d", like.Fd())
	list := make([]byte, 64<<10) // the most bytes that an attribute can have
	n, err := syscall.Getxattr(from, accessList, list)
	if err == nil {
		err = syscall.Setxattr(to, accessList, list[:n], 0)
	} else if errors.Is(err, syscall.ENODATA) {
		err = syscall.Removexattr(to, accessList) // the folder may have given the file one
	}
	if errors.Is(err, syscall.ENODATA) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOENT) { // the last: no /proc
		return nil
	}
	return err
}
