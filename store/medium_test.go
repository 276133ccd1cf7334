//go:build linux

package store_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// A file on a medium that cannot be written can be read.
func TestReadOnlyMedium(t *testing.T) {
	medium := newMedium(t)
	path := filepath.Join(medium, "log.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s}
	e.create(nil)
	e.append(says("a", 3)...)
	e.no(s.Close())
	if out, err := exec.Command("mount", "-o", "remount,ro", medium).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted for reading here: %v\n%s", err, out)
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

// newMedium mounts a file system in memory, and returns where.
func newMedium(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted here: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return dir
}
