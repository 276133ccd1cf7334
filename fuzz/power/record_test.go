//go:build linux

package power

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// record is what processes did to a directory, and what is known of it.
type record struct {
	start  map[string]*file
	steps  []step
	model  *model
	killed int // at which step a process was, and another went on; 0 is none
}

// needStrace returns the strace program, or skips the test.
func needStrace(t testing.TB) string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace, to record what a process writes and syncs")
	}
	probe := exec.Command(strace, "-f", "--seccomp-bpf", "-o", os.DevNull, "-e", "trace=fdatasync", "true")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %v\n%s", err, out)
	}
	return strace
}

// logsOf returns what the file in a directory holds, or nil if there is none. The directory is the
// caller's to throw away.
func logsOf(dir string) (map[string][]patch.Record, error) {
	path := filepath.Join(dir, fileName)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	s, err := store.Open(path, store.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return shows(context.Background(), s)
}

// golden returns a database that some version of the format wrote.
func golden(t testing.TB, packed string) map[string]*file {
	t.Helper()
	f, err := os.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*file{fileName: {data: bytes.TrimRight(content, "\x00"), size: int64(len(content))}}
}

// recorder records processes that do scripts.
type recorder struct {
	testing.TB
	strace, room string
}

// dir returns a new directory, for the caller to remove.
func (t recorder) dir() string {
	t.Helper()
	dir, err := os.MkdirTemp(t.room, "")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// logs returns what a store holds that begins with the given files.
func (t recorder) logs(start map[string]*file) map[string][]patch.Record {
	t.Helper()
	dir := t.dir()
	defer os.RemoveAll(dir)
	t.put(start, dir)
	logs, err := logsOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return logs
}

func (t recorder) put(start map[string]*file, dir string) {
	t.Helper()
	for name, f := range start {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, f.data, 0o600), os.Truncate(path, f.size)); err != nil {
			t.Fatal(err)
		}
	}
}

// record records the processes of a script. If kill is above 0, the first one is killed at that
// sync of a thread.
func (t recorder) record(start map[string]*file, logs map[string][]patch.Record, s script, kill int) *record {
	t.Helper()
	dir := t.dir()
	defer os.RemoveAll(dir)
	path := dir + ".trace"
	defer func() { _ = errors.Join(os.Remove(path), os.Remove(jobOf(dir))) }()
	t.put(start, dir)
	m := newModel(s, logs)
	r := &recording{dir: dir, names: map[string]*file{}}
	for name, f := range start {
		r.names[name] = f
	}
	killed := 0
	for {
		tried, done := m.progress()
		args := []string{t.strace, "-f", "-xx", "-s", "1000000000", "-e", "signal=none", "-e", "trace=" + traced, "-o", path}
		if kill > 0 {
			args = append(args, "-e", fmt.Sprintf("inject=fdatasync:signal=KILL:when=%d", kill))
		} else {
			args = append(args, "--seccomp-bpf") // faster, but kills nobody
		}
		cmd := child(t, job{Script: s, Dir: dir, Tried: tried, Done: done}, args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		err := cmd.Run()
		if err != nil && kill == 0 {
			t.Fatalf("%v\n%s", err, said.String())
		}
		trace, readErr := os.ReadFile(path)
		if readErr == nil {
			readErr = r.read(trace)
		}
		if readErr != nil {
			t.Fatal(readErr)
		}
		if readErr = r.whole(start); readErr != nil {
			t.Fatal(readErr)
		}
		for i, s := range r.steps[r.heard:] {
			if s.kind == stepSay {
				if err := m.heard(s.says, r.heard+i); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.heard = len(r.steps)
		if err == nil {
			return &record{start: start, steps: r.steps, model: m, killed: killed}
		}
		kill, killed = 0, len(r.steps)
	}
}

// whole checks that the record is of all that was done: replayed, it gives the directory as it is.
// A call in which the process was killed may have taken place or not.
func (r *recording) whole(start map[string]*file) error {
	replay := func() error {
		d := newDisk(start)
		for _, s := range r.steps {
			d.apply(s)
		}
		r.names = d.shown()
		return d.same(r.dir)
	}
	err := replay()
	for i := len(r.steps) - 1; err != nil && i >= r.heard; i-- {
		if !r.steps[i].doubt {
			continue
		}
		all := r.steps
		if r.steps = slices.Concat(all[:i], all[i+1:]); replay() == nil {
			return nil
		}
		r.steps = all
	}
	return err
}
