package pgtest

import "syscall"

// endWithParent makes the kernel stop the new process when its parent thread ends.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }
