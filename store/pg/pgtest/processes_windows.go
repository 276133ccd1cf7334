package pgtest

import "syscall"

// On Windows no server is found, and tests that need one are skipped; the package builds.

func attributes() *syscall.SysProcAttr { return nil }

func stopAndKill(int) {}
