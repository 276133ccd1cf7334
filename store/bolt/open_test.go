package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// Several processes can open a file for reading at the same time, even without write permission, unless a process
// has the file open for writing. Reading does not change the file.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log.db")
	fill(t, path)
	before := testlog.Must(os.ReadFile(path))(t)
	testlog.NoError(t, errors.Join(os.Chmod(path, 0o400), os.Chmod(dir, 0o500)))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	readers := make([]*bolt.Backend, 3)
	for i := range readers {
		readers[i] = testlog.Must(bolt.Open(path, bolt.Options{ReadOnly: true, LockTimeout: time.Millisecond}))(t)
	}
	for _, b := range readers {
		if got, err := list(b); err != nil || len(got) != 2 {
			t.Errorf("sessions %v, %v", got, err)
		}
		for name, call := range calls(b) {
			want := map[string]error{"Append": backend.ErrReadOnly, "Delete": backend.ErrReadOnly, "PutSnapshot": backend.ErrReadOnly}[name]
			if err := call(); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		testlog.WantNil(t, b.Check(ctx))
	}
	if os.Geteuid() == 0 { // root ignores the file mode
		testlog.ErrorIs(t, testlog.ErrorOf(bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond})), backend.ErrLocked, "a writer while readers have the file open")
	}
	for _, b := range readers {
		testlog.WantNil(t, b.Close())
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed (%v)", err)
	}
	testlog.NoError(t, errors.Join(os.Chmod(path, 0o600), os.Chmod(dir, 0o700)))
	writer := testlog.Must(bolt.Open(path, bolt.Options{}))(t)
	locked := testlog.ErrorOf(bolt.Open(path, bolt.Options{ReadOnly: true, LockTimeout: time.Millisecond}))
	testlog.ErrorIs(t, locked, backend.ErrLocked, "a reader while a writer has the file open")
	holder := "another process"
	if runtime.GOOS == "linux" {
		holder = fmt.Sprintf("process %d (", os.Getpid())
	}
	if !strings.Contains(locked.Error(), "is in use by "+holder) {
		t.Errorf("it does not name the holder: %v", locked)
	}
	testlog.WantNil(t, writer.Close())
	absent := filepath.Join(dir, "absent.db")
	for range 2 {
		testlog.ErrorIs(t, testlog.ErrorOf(bolt.Open(absent, bolt.Options{ReadOnly: true})), fs.ErrNotExist, "a file that is not there")
	}
	if _, err := bolt.Open(dir, bolt.Options{ReadOnly: true}); err == nil || errors.Is(err, backend.ErrDamaged) {
		t.Errorf("a directory: %v", err)
	}
}

// If several processes create a file at the same path at the same time, all of them open the same file. No other
// files remain, and only the owner can read the file.
func TestConcurrentCreate(t *testing.T) {
	t.Parallel()
	for range 5 {
		dir := t.TempDir()
		path := filepath.Join(dir, "log.db")
		var wg sync.WaitGroup
		const n = 8
		for i := range n {
			wg.Go(func() {
				b, err := bolt.Open(path, bolt.Options{NoSync: true, LockTimeout: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				testlog.WantNil(t, errors.Join(b.Append(ctx, fmt.Sprint(i), backend.Batch{Creation: "c", Create: true}), b.Close()))
			})
		}
		wg.Wait()
		b := testlog.Must(bolt.Open(path, bolt.Options{}))(t)
		got, err := list(b)
		if err := errors.Join(err, b.Close()); err != nil || len(got) != n {
			t.Errorf("%d sessions, want %d; %v", len(got), n, err)
		}
		wantOnlyFile(t, path)
		// Windows has no such modes.
		if info := testlog.Must(os.Stat(path))(t); runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("a new file: %v", info.Mode())
		}
	}
}

// A file can be opened through a symbolic link. If the link is dangling or circular, Open fails.
func TestOpenSymlink(t *testing.T) {
	dir := t.TempDir()
	link, target, circle := filepath.Join(dir, "link.db"), filepath.Join(t.TempDir(), "data.db"), filepath.Join(dir, "circle")
	if err := errors.Join(os.Symlink(target, link), os.Symlink(circle, circle)); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	for _, path := range []string{link, circle} {
		failIfHangs(t, "Open", func() {
			if _, err := bolt.Open(path, bolt.Options{}); err == nil {
				t.Errorf("%s was opened", path)
			}
		})
	}
	fill(t, target)
	testlog.NoError(t, open(t, link).Close())
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link: %v", err)
	}
}
