//go:build unix

package pgtest

import "syscall"

// stopAndKill kills a process and those that it has started, and waits for their end.
func stopAndKill(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	// A child that waits for a standby, and finds the postmaster gone, waits no longer: it
	// shows a commit that no standby has. So the postmaster goes last.
	children := childrenOf(pid)
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	for _, child := range children {
		awaitEnd(child)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
