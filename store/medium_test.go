//go:build linux

package store_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

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

// disk is an ext4 file system in a file.
type disk struct {
	t          *testing.T
	image, dir string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, to make a file system", tool)
		}
	}
	d := &disk{t, filepath.Join(t.TempDir(), "disk"), t.TempDir()}
	if err := errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4 makes no file system here: %v\n%s", err, out)
	}
	if err := d.mount(); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { d.unmount() })
	return d
}

func (d *disk) mount() error {
	if out, err := exec.Command("mount", "-t", "ext4", "-o", "loop", d.image, d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w\n%s", err, out)
	}
	return nil
}

func (d *disk) remountReadOnly() error {
	if out, err := exec.Command("mount", "-o", "remount,ro", d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w\n%s", err, out)
	}
	return nil
}

func (d *disk) unmount() {
	d.t.Helper()
	// A process that has just been killed may hold it a moment longer.
	var out []byte
	var err error
	for range 50 {
		if out, err = exec.Command("umount", d.dir).CombinedOutput(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = exec.Command("umount", "-l", d.dir).Run()
	d.t.Fatalf("umount: %v\n%s", err, out)
}
