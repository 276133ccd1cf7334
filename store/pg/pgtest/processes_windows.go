package pgtest

import "syscall"

// On Windows, find never returns a server, and tests that need one are skipped. The package must compile, because
// other packages import it.

func attributes() *syscall.SysProcAttr { return nil }

func stopAndKill(int) {}
