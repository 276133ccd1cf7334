//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package bolt

import "os"

// release closes a file that bbolt has locked and will not close.
func release(file *os.File) { _ = file.Close() }
