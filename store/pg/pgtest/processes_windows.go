package pgtest

import "syscall"

// On Windows, find returns no server, and tests that need a server are skipped. These functions only make the
// package compile.

func attributes() *syscall.SysProcAttr { return nil }

func stopAndKill(int) {}
