package pgtest

import "syscall"

// endWithParent has a process end with the one that starts it.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }
