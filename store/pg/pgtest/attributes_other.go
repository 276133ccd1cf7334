//go:build unix && !linux

package pgtest

import "syscall"

func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if uid, gid, ok := unprivileged(); ok {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return a
}
