package store_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

func init() {
	parts["create file"] = func(path string) error {
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
// each thread, so it is to be one thread, if the system lets it, that does the work.
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
					break // there are not so many
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
