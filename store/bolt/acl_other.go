//go:build unix && !linux

package bolt

import "os"

// copyAccessList does nothing on this system.
func copyAccessList(_, _ *os.File) error { return nil }
