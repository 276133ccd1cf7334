package pgtest

import "syscall"

// endWithParent makes the kernel stop the new process when the thread that started it ends.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }
