//go:build unix && !linux

package bolt

import "os"

// copyAccessList leaves the file's access list as it is.
func copyAccessList(_, _ *os.File) error { return nil }
