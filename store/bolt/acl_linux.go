package bolt

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const accessList = "system.posix_acl_access"

// copyAccessList gives a file the access list of another one, or none if that has none.
func copyAccessList(file, like *os.File) error {
	to, from := fmt.Sprintf("/proc/self/fd/%d", file.Fd()), fmt.Sprintf("/proc/self/fd/%d", like.Fd())
	list := make([]byte, 64<<10) // the most that an attribute has
	n, err := syscall.Getxattr(from, accessList, list)
	if err == nil {
		err = syscall.Setxattr(to, accessList, list[:n], 0)
	} else if errors.Is(err, syscall.ENODATA) {
		err = syscall.Removexattr(to, accessList) // one that the folder gave it
	}
	if errors.Is(err, syscall.ENODATA) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOENT) { // or no /proc
		return nil
	}
	return err
}
