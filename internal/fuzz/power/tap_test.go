//go:build linux && (amd64 || arm64)

package power

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tapped are the system calls that a tap sees. They change files and names.
var tapped = map[int32]string{
	unix.SYS_PWRITE64: "write", unix.SYS_FDATASYNC: "sync", unix.SYS_FSYNC: "fsync", unix.SYS_FTRUNCATE: "truncate",
	unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_LINKAT: "link", unix.SYS_UNLINKAT: "unlink",
}

// syscall is a system call that a thread of this process is about to make.
type syscall struct {
	name string
	file file   // file that write, sync, fsync or truncate changes
	data []byte // data of a write
	at   int64  // offset of a write, or length of a truncation
	from string // old name, for rename, link and unlink
	to   string // new name, for rename and link
	fd   int
}

// file identifies a file, also after a rename.
type file struct {
	inode    uint64
	path     string
	dir      bool
	unlinked bool // whether the file has no name
}

// outcome is the outcome of a system call.
type outcome struct {
	errno unix.Errno // error of the call; 0 means that the call is made
	short int        // for a write: the maximum number of bytes written
	skip  bool       // whether to skip the call and report success
}

// tap decides the outcome of each call of this process that changes files. A process has only one tap, because a tap
// cannot be removed.
type tap struct {
	listener int
	mu       sync.Mutex
	decide   func(syscall) outcome // if nil, all calls are made
}

var theTap = sync.OnceValues(newTap)

// start makes f decide the outcome of each call until off is called.
func (t *tap) start(f func(syscall) outcome) (off func()) {
	t.set(f)
	return func() { t.set(nil) }
}

func (t *tap) set(f func(syscall) outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decide = f
}

// needTap returns the tap of the process, or skips the test.
func needTap(t testing.TB) *tap {
	t.Helper()
	tap, err := theTap()
	if err != nil {
		t.Skipf("needs to decide on system calls of its own (seccomp): %v", err)
	}
	return tap
}

// newTap installs a seccomp filter that reports the calls of all threads. seccomp_unotify(2) describes such filters.
func newTap() (*tap, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // loads the number of the system call
	for number := range tapped {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(number)},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	runtime.LockOSThread()
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.UnlockOSThread()
	if e != 0 {
		return nil, e
	}
	// If the kernel supports this flag, it switches between the two threads without delay.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	t := &tap{listener: int(fd)}
	go t.listen()
	return t, nil
}

// The kernel's structures seccomp_notif and seccomp_notif_resp.
type (
	notice struct {
		id    uint64
		pid   uint32
		flags uint32
		data  struct {
			nr      int32
			arch    uint32
			pointer uint64
			args    [6]uint64
		}
	}
	answer struct {
		id    uint64
		value int64
		err   int32
		flags uint32
	}
)

// listen answers the kernel's notifications. The calls that listen itself makes are not tapped.
func (t *tap) listen() {
	runtime.LockOSThread()
	for {
		var n notice
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(t.listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); e != 0 {
			continue // the calling thread was interrupted
		}
		a := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		c, o := t.decode(&n)
		switch {
		case o.errno != 0:
			a.err, a.flags = -int32(o.errno), 0
		case o.short > 0:
			a.flags = 0
			wrote, err := unix.Pwritev(c.fd, [][]byte{c.data[:o.short]}, c.at)
			if a.value = int64(wrote); err != nil {
				a.value, a.err = 0, -int32(unix.EIO)
			}
		case o.skip:
			a.value, a.flags = int64(len(c.data)), 0
		}
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(t.listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a))); e != 0 && e != unix.ENOENT {
			panic(fmt.Sprint("answering the kernel: ", e))
		}
	}
}

// decode decodes a call and returns the decision about it.
func (t *tap) decode(n *notice) (c syscall, o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.decide == nil {
		return c, o
	}
	a := n.data.args
	c.name = tapped[n.data.nr]
	switch c.name {
	case "write":
		c.data = memory(a[1], int(a[2]))
		c.at = int64(a[3])
	case "truncate":
		c.at = int64(a[1])
	case "rename", "link":
		c.from, c.to = text(a[1]), text(a[3])
		return c, t.decide(c)
	case "unlink":
		if a[2]&unix.AT_REMOVEDIR != 0 { // os.Remove calls unlinkat with this flag after an error
			return c, o
		}
		c.from = text(a[1])
		return c, t.decide(c)
	}
	var stat unix.Stat_t
	c.fd = int(int32(a[0]))
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", c.fd))
	if err := errors.Join(err, unix.Fstat(c.fd, &stat)); err != nil {
		return c, o
	}
	path, gone := strings.CutSuffix(path, " (deleted)")
	c.file = file{stat.Ino, path, stat.Mode&unix.S_IFMT == unix.S_IFDIR, gone}
	return c, t.decide(c)
}

// memory returns the bytes at an address of this process. The thread that made the call is blocked until listen
// answers.
func memory(address uint64, n int) []byte {
	into := make([]byte, n)
	n, _ = unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &into[0], Len: uint64(n)}}, []unix.RemoteIovec{{Base: uintptr(address), Len: n}}, 0)
	return into[:max(n, 0)]
}

// text returns the string at an address. It does not read unmapped pages.
func text(address uint64) string {
	var out []byte
	for page := 4096 - int(address%4096); ; page = 4096 {
		part := memory(address+uint64(len(out)), page)
		if i := bytes.IndexByte(part, 0); i >= 0 || len(part) == 0 {
			return string(append(out, part[:max(i, 0)]...))
		}
		out = append(out, part...)
	}
}
