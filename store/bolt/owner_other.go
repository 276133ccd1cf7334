//go:build !unix

package bolt

import "os"

// likeFile does nothing here: a new file belongs to the user that made it.
func likeFile(_, _ *os.File) error { return nil }
