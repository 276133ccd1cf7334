package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

func init() {
	parts["create file"] = func(path string) error {
		runtime.LockOSThread() // strace counts the calls of each thread
		s, err := store.Open(path, store.Options{})
		if err != nil {
			return err
		}
		return s.Close()
	}
}

// needStrace returns the strace program, or skips the test.
func needStrace(t *testing.T) string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("needs strace, to make system calls fail")
	}
	if testing.Short() {
		t.Skip("slow")
	}
	probe := exec.Command(strace, "-f", "-o", os.DevNull, "-e", "trace=fdatasync", "true")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %v\n%s", err, out)
	}
	return strace
}

// tracedChild is child for a process that strace makes fail. strace counts the calls of
// each thread, so the process has one goroutine at a time.
func tracedChild(t *testing.T, part, path string, strace ...string) *exec.Cmd {
	t.Helper()
	cmd := child(t, part, path, strace...)
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	return cmd
}

// Each system call that creates a file fails once, for want of space or otherwise, or is
// the last before a crash: then there is no file or one that opens, and another try makes
// one.
func TestCreationCutShort(t *testing.T) {
	strace := needStrace(t)
	calls := []string{"pwrite64", "fdatasync", "ftruncate", "fsync", "linkat", "unlinkat"}
	injected, without := 0, 0
	for _, call := range calls {
		for _, how := range []string{"error=ENOSPC", "signal=KILL"} {
			for n := 1; ; n++ {
				path := filepath.Join(t.TempDir(), "log.db")
				trace := filepath.Join(t.TempDir(), "trace")
				cmd := tracedChild(t, "create file", path, strace, "-f", "-o", trace, "-e", "trace="+call,
					"-e", fmt.Sprintf("inject=%s:%s:when=%d", call, how, n))
				out, runErr := cmd.CombinedOutput()
				text := readFile(t, trace)
				if !strings.Contains(string(text), "(INJECTED)") && !strings.Contains(string(text), "SIGKILL") {
					if runErr != nil {
						t.Errorf("%s %d: %v\n%s", call, n, runErr, out)
					}
					break // the call was made fewer than n times
				}
				injected++
				what := fmt.Sprintf("%s %d with %s", call, n, how)
				if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
					without++
				} else {
					s, err := store.Open(path, store.Options{ReadOnly: true})
					if err != nil {
						t.Errorf("%s: the file does not open: %v", what, err)
						continue
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
				s, err := store.Open(path, store.Options{})
				if err != nil {
					t.Errorf("%s: another try: %v", what, err)
					continue
				}
				e := &env{T: t, store: s}
				e.create(nil)
				e.append(say("a"))
				e.no(s.Close())
			}
		}
	}
	if injected < 2*len(calls) || without == 0 {
		t.Errorf("%d system calls were cut short, %d of them left no file; the test tests nothing", injected, without)
	}
	t.Logf("%d system calls, %d of them left no file", injected, without)
}

func init() {
	parts["vacuum"] = vacuumAndAppend
}

// vacuumAndAppend vacuums a file and appends to it, and says what was acknowledged. What fails
// once is tried again.
func vacuumAndAppend(path string) error {
	runtime.LockOSThread() // strace counts the calls of each thread
	var s *store.Store
	failures := 0
	again := func(call func() error) error {
		var err error
		for range 4 {
			if err = call(); err == nil {
				return nil
			}
			failures++
		}
		return err
	}
	if err := again(func() (err error) { s, err = store.Open(path, store.Options{}); return err }); err != nil {
		return err
	}
	add := func(id string) error {
		return again(func() error {
			_, err := s.AppendEvents(ctx, key, store.AppendOptions{}, say(id))
			if err == nil {
				fmt.Println(id)
			}
			return err
		})
	}
	vacuum := func() error {
		err := s.Vacuum(ctx)
		if err != nil { // the store goes on all the same
			err = errors.Join(err, add("between"))
		}
		return err
	}
	err := errors.Join(add("before"), again(vacuum), add("after"), s.Close())
	fmt.Fprintln(os.Stderr, failures, "calls failed")
	return err
}

// wornFile makes a file with a few sessions, of which others have been deleted.
func wornFile(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, store.Options{})
	e := &env{T: t, store: s}
	e.no(err)
	e.create(map[string]any{"app:k": 1})
	e.append(says("e", 20)...)
	for i := range 4 {
		k := store.Key{App: "app", User: "user", Session: fmt.Sprint("other", i)}
		e.must(s.Create(ctx, k, nil))
		e.must(s.AppendEvents(ctx, k, store.AppendOptions{}, says("o", 100)...))
		if i > 0 {
			e.no(s.Delete(ctx, k))
		}
	}
	e.no(s.Close())
	data := readFile(e, path)
	return data
}

// afterVacuum checks that a file has all that it had, and what was acknowledged since, and that
// it can be vacuumed.
func afterVacuum(t *testing.T, what, path, acknowledged string) {
	t.Helper()
	s, err := store.Open(path, store.Options{LockTimeout: 5 * time.Second})
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	e := &env{T: t, store: s}
	var got []string
	for _, r := range e.records(key) {
		got = append(got, r.ID())
	}
	for _, id := range strings.Fields(acknowledged) {
		if !slices.Contains(got, id) {
			t.Errorf("%s: %s was acknowledged and is lost", what, id)
		}
	}
	if len(got) < 20 || len(got) > 23 || len(e.records(store.Key{App: "app", User: "user", Session: "other0"})) != 100 {
		t.Errorf("%s: records %s", what, got)
	}
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%s: %v %v", what, p, err)
	}
	e.no(s.Vacuum(ctx))
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%s, vacuumed: %v %v", what, p, err)
	}
	e.no(s.Close())
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%s: beside the file there is %v (%v)", what, left, err)
	}
}

// Each system call of a vacuum fails once, or is the last before the process is killed: nothing
// is lost that was acknowledged, and the next one has its way.
func TestVacuumCutShort(t *testing.T) {
	strace := needStrace(t)
	worn := wornFile(t)
	injected, kept, replaced := 0, 0, 0
	for _, call := range []string{"pwrite64", "fdatasync", "fsync", "ftruncate", "renameat", "unlinkat"} {
		for _, how := range []string{"error=EIO", "signal=KILL"} {
			for n := 1; ; n++ {
				path := filepath.Join(t.TempDir(), "log.db")
				testlog.NoError(t, os.WriteFile(path, worn, 0o600))
				trace := filepath.Join(t.TempDir(), "trace")
				cmd := tracedChild(t, "vacuum", path, strace, "-f", "-o", trace, "-e", "trace="+call,
					"-e", fmt.Sprintf("inject=%s:%s:when=%d", call, how, n))
				var said bytes.Buffer
				cmd.Stderr = &said
				out, runErr := cmd.Output()
				text := readFile(t, trace)
				what := fmt.Sprintf("%s %d with %s", call, n, how)
				hit := strings.Contains(string(text), "(INJECTED)") || strings.Contains(string(text), "SIGKILL")
				if runErr != nil && (!hit || how == "error=EIO") {
					t.Errorf("%s: %v\n%s", what, runErr, said.String())
				}
				if hit && call == "fsync" && strings.Contains(said.String(), "0 calls failed") {
					t.Errorf("%s: no call failed", what)
				}
				if hit && how == "signal=KILL" {
					if info, err := os.Stat(path); err == nil && info.Size() < int64(len(worn)) {
						replaced++
					} else {
						kept++
					}
				}
				afterVacuum(t, what, path, string(out))
				if !hit {
					break // the call was made fewer than n times
				}
				injected++
			}
		}
	}
	if kept == 0 || replaced == 0 {
		t.Errorf("%d kills left the old file, %d the new one; the test tests nothing", kept, replaced)
	}
	t.Logf("%d system calls, %d kills left the old file, %d the new one", injected, kept, replaced)
}
