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

// stopAndKill kills a process and those that it has started, as /proc knows them, and waits for the end of these. Where
// there is no /proc it kills the process alone.
func stopAndKill(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	await(strconv.Itoa(pid), "T") // until it is stopped, it may start another child
	// A child that waits for a standby, and finds the postmaster gone, waits no longer: it
	// shows a commit that no standby has. So the postmaster goes last.
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
	children := strings.Fields(string(list))
	for _, child := range children {
		if id, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(id, syscall.SIGKILL)
		}
	}
	for _, child := range children {
		await(child, "Z") // only as a zombie has it given up its memory
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// await waits until a process is in a state of /proc, or has ended.
func await(pid, state string) {
	for range 60_000 {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") "+state+" ") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
