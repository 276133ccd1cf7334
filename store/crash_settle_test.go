//go:build linux

package store_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

var everyCall = flag.Bool("every-call", false, "cut the power after each write that fails, not only after each sync")

// settleSteps are writes of two syncs each: of the data, and of the meta page.
var settleSteps = []struct {
	name  string
	do    func(s *store.Store) error
	there func(e *env) bool
}{
	{"append", func(s *store.Store) error {
		_, err := s.AppendEvents(ctx, key, store.AppendOptions{}, say("s1"))
		return err
	}, func(e *env) bool { return e.logged("s1") }},
	{"patch", func(s *store.Store) error {
		_, err := s.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 1).WithID("p"))
		return err
	}, func(e *env) bool { return e.logged("p") }},
	{"delete", func(s *store.Store) error { return s.Delete(ctx, elsewhere) }, func(e *env) bool {
		_, err := e.store.Info(ctx, elsewhere)
		return errors.Is(err, store.ErrNotFound)
	}},
	{"create", func(s *store.Store) error {
		_, err := s.Create(ctx, store.Key{App: "app", User: "user", Session: "third"}, nil)
		return err
	}, func(e *env) bool {
		_, err := e.store.Info(ctx, store.Key{App: "app", User: "user", Session: "third"})
		return err == nil
	}},
}

func (e *env) logged(id string) bool {
	return slices.ContainsFunc(e.records(key), func(r patch.Record) bool { return r.ID() == id })
}

func settleOptions() store.Options {
	return store.Options{Snapshots: snapshot.Policy{Every: -1}, Logger: slog.New(slog.DiscardHandler)}
}

func init() {
	parts["settle"] = func(path string) error {
		s, err := store.Open(path, settleOptions())
		if err != nil {
			return err
		}
		for i, step := range settleSteps {
			if fmt.Sprint(i) == os.Getenv("PATCHLOG_TEST_STEPS") {
				os.Exit(0) // as it is
			}
			if err := step.do(s); err != nil {
				fmt.Println("error", err)
			} else {
				fmt.Println("ack", i)
			}
		}
		os.Exit(0)
		return nil
	}
}

// failThenCut runs the steps up to the one with the given sync, which fails, cuts the
// power, and returns how many acknowledged steps are lost then. unsettled leaves out what
// settling rests on: its sync says that all is well, and does nothing.
func (d *disk) failThenCut(strace, call string, n, steps int, unsettled bool) (acks, lost int, injected bool) {
	t := d.t
	t.Helper()
	path := filepath.Join(d.dir, "log.db")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	s, err := store.Open(path, settleOptions())
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s}
	e.create(nil)
	e.append(say("a"))
	_, err = s.Create(ctx, elsewhere, nil)
	e.no(err)
	e.no(s.Close())
	trace := filepath.Join(t.TempDir(), "trace")
	args := []string{strace, "-f", "-o", trace, "-e", "trace=fsync," + call, "-e", fmt.Sprintf("inject=%s:error=EIO:when=%d", call, n)}
	if unsettled {
		args = append(args, "-e", "inject=fsync:retval=0")
	}
	cmd := tracedChild(t, "settle", path, args...)
	cmd.Env = append(cmd.Env, fmt.Sprint("PATCHLOG_TEST_STEPS=", steps))
	out, err := cmd.CombinedOutput()
	if err != nil && (call != "pwrite64" || strings.Contains(string(out), "ack")) { // the first is of opening
		t.Fatalf("%v\n%s", err, out)
	}
	d.cut()
	text, err := os.ReadFile(trace)
	e.no(err)
	d.repower()
	s, err = store.Open(path, settleOptions())
	if err != nil {
		t.Errorf("%s %d: after the power cut: %v", call, n, err)
		return 0, 0, false
	}
	e.store = s
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		var i int
		if k, _ := fmt.Sscanf(lines.Text(), "ack %d", &i); k == 1 {
			acks++
			if !settleSteps[i].there(e) {
				lost++
			}
		}
	}
	e.isHealthy(store.VerifyOptions{})
	e.no(s.Close())
	return acks, lost, strings.Contains(string(text), "EIO (Input/output error) (INJECTED)")
}

// A sync fails, the store goes on, and the power fails: what was acknowledged is there.
// Without settling some of it would not be.
func TestSyncFailsThenPowerCut(t *testing.T) {
	strace := needStrace(t)
	d := newDisk(t)
	injected, acknowledged := 0, 0
	run := func(call string, n, steps int) bool {
		acks, lost, hit := d.failThenCut(strace, call, n, steps, false)
		if lost > 0 {
			t.Errorf("with %s %d failing, %d of %d acknowledged writes are lost", call, n, lost, acks)
		}
		if hit {
			injected++
		}
		acknowledged += acks
		return hit
	}
	for n := 1; n <= 2*len(settleSteps); n++ {
		tries := 0
		for !run("fdatasync", n, (n+1)/2) { // the calls are counted by thread, and were made by several
			if tries++; tries == 50 {
				t.Fatalf("sync %d does not fail; the test tests nothing", n)
			}
		}
	}
	if *everyCall {
		for n := 1; n <= 30; n++ {
			for steps := 1; steps <= len(settleSteps); steps++ {
				run("pwrite64", n, steps)
			}
		}
	}
	if acknowledged == 0 {
		t.Error("nothing was acknowledged; the test tests nothing")
	}
	lost := 0
	for try := 0; try < 10 && lost == 0; try++ { // the control; several threads may have made the calls
		_, lost, _ = d.failThenCut(strace, "fdatasync", 2, 1, true)
	}
	if lost == 0 {
		t.Error("without settling nothing is lost; the test tests nothing")
	}
	t.Logf("%d calls failed, %d writes were acknowledged; without settling %d are lost", injected, acknowledged, lost)
}

// A file on a medium that cannot be written can be read.
func TestReadOnlyMedium(t *testing.T) {
	d := newDisk(t)
	path := filepath.Join(d.dir, "log.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s}
	e.create(nil)
	e.append(says("a", 3)...)
	e.no(s.Close())
	if err := d.remountReadOnly(); err != nil {
		t.Skipf("no file system can be mounted for reading here: %v", err)
	}
	if s, err := store.Open(path, store.Options{}); err == nil {
		_ = s.Close()
		t.Error("it was opened for writing")
	}
	s, err = store.Open(path, store.Options{ReadOnly: true, Snapshots: snapshot.Policy{Every: 1}})
	if err != nil {
		t.Fatal(err)
	}
	e.store = s
	e.same("visible", ids(e.view()), "a1 a2 a3")
	_, err = s.AppendEvents(ctx, key, store.AppendOptions{}, say("new"))
	e.is(err, store.ErrReadOnly)
	_, err = s.Create(ctx, elsewhere, nil)
	e.is(err, store.ErrReadOnly)
	e.is(s.Delete(ctx, key), store.ErrReadOnly)
	e.isHealthy(store.VerifyOptions{})
	e.no(s.Close())
}
