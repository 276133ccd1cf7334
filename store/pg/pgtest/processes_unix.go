//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(a)
	if uid, gid, ok := unprivileged(); ok {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return a
}

// stopAndKill kills a process and its children, which it finds in /proc. Without /proc it kills only the process.
func stopAndKill(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	await(strconv.Itoa(pid), "T") // wait until the process is stopped, because a running process could start another child
	// Kill the children first. If a child waits for a standby and notices that the postmaster is gone, it stops
	// waiting. Its commit then becomes visible without being on the standby.
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
	children := strings.Fields(string(list))
	for _, child := range children {
		if id, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(id, syscall.SIGKILL)
		}
	}
	for _, child := range children {
		await(child, "Z") // wait until the child is a zombie, which has released its memory
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// await waits until a process has ended or is in the given state of /proc.
func await(pid, state string) {
	for range 60_000 {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") "+state+" ") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
