package bolt_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// accessListOf returns an access control list that lets a second user read and write. The encoded list has a
// version, and for each entry a tag, permissions and a user id.
func accessListOf(user uint32) []byte {
	list := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, ^uint32(0)}, {2, 6, user}, {4, 4, ^uint32(0)}, {0x10, 6, ^uint32(0)}, {0x20, 0, ^uint32(0)}} {
		list = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(list, e.tag), e.perm)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	return list
}

// A vacuum keeps the owner, the mode and the access control list.
func TestVacuumKeepsMode(t *testing.T) {
	b, path := openCrowded(t)
	const attribute = "system.posix_acl_access"
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 { // only root can change the owner of a file
		uid, gid = 65534, 12345
		testlog.NoError(t, os.Chown(path, uid, gid))
	}
	for _, mode := range []os.FileMode{0o600, 0o640} {
		testlog.NoError(t, os.Chmod(path, mode))
		testlog.NoError(t, b.Vacuum(ctx, noSum))
		info := testlog.Must(os.Stat(path))(t)
		if of := info.Sys().(*syscall.Stat_t); info.Mode() != mode || int(of.Uid) != uid || int(of.Gid) != gid {
			t.Errorf("mode %v, owner %d, group %d", info.Mode(), of.Uid, of.Gid)
		}
	}
	list := accessListOf(12345)
	if err := syscall.Setxattr(path, attribute, list, 0); err != nil {
		t.Skipf("the file system has no access lists: %v", err)
	}
	testlog.NoError(t, b.Vacuum(ctx, noSum))
	got := make([]byte, 1000)
	n, err := syscall.Getxattr(path, attribute, got)
	if err != nil || string(got[:n]) != string(list) {
		t.Errorf("the access list is %x (%v), want %x", got[:max(n, 0)], err, list)
	}
	testlog.NoError(t, b.Close())
}

// A member of the file's group can vacuum the file, and the file keeps its group.
func TestVacuumByGroupMember(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs to be another user")
	}
	const owner, member, group = 65534, 12346, 12345
	b, path := openCrowded(t)
	testlog.NoError(t, b.Close())
	testlog.NoError(t, os.Chown(path, owner, group))
	testlog.NoError(t, os.Chmod(path, 0o660))
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		testlog.NoError(t, os.Chmod(dir, 0o777))
	}
	done := make(chan error)
	go func() {
		// The thread is never unlocked. It runs as another user, so it must end with the goroutine.
		runtime.LockOSThread()
		syscall.RawSyscall(syscall.SYS_SETFSGID, group, 0, 0)
		syscall.RawSyscall(syscall.SYS_SETFSUID, member, 0, 0)
		b, err := bolt.Open(path, bolt.Options{})
		if err == nil {
			err = b.Vacuum(ctx, noSum)
			_ = b.Close()
		}
		done <- err
	}()
	testlog.NoError(t, <-done)
	info := testlog.Must(os.Stat(path))(t)
	if of := info.Sys().(*syscall.Stat_t); info.Mode() != 0o660 || of.Gid != group || of.Uid != member {
		t.Errorf("mode %v, owner %d, group %d", info.Mode(), of.Uid, of.Gid)
	}
}

// If this package panics in a transaction, the panic is not reported as damage, and no lock stays locked.
func TestPanicOutsideBbolt(t *testing.T) {
	b, path := openCrowded(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a nil dereference does not panic")
			}
		}()
		var none *int
		err := b.InTx(func(*bbolt.Tx) { *none = 1 })
		t.Errorf("a nil dereference gives %v", err)
	}()
	testlog.NoError(t, b.Vacuum(ctx, noSum))
	closeAndCheck(t, b, path)
}
