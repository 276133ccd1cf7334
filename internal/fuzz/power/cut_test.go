//go:build linux && (amd64 || arm64)

package power

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/patchlog-dev/patchlog/internal/fuzz/kill"
	"github.com/patchlog-dev/patchlog/store"
)

// volume is an ext4 file system in a file, on which a power cut can be simulated. At a power cut, the kernel
// discards everything that was not synced.
type volume struct {
	testing.TB
	image, dir string
}

func newVolume(t testing.TB) *volume {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system whose power can be cut")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, to make a file system whose power can be cut", tool)
		}
	}
	base := newDir(t)
	v := &volume{t, filepath.Join(base, "image"), filepath.Join(base, "volume")}
	if err := errors.Join(os.Mkdir(v.dir, 0o700), os.WriteFile(v.image, nil, 0o600), os.Truncate(v.image, 512<<20)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", v.image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4 makes no file system here: %v\n%s", err, out)
	}
	if err := v.mount(); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(v.unmount)
	return v
}

func (v *volume) mount() error {
	if out, err := exec.Command("mount", "-t", "ext4", "-o", "loop", v.image, v.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w\n%s", err, out)
	}
	return nil
}

func (v *volume) unmount() {
	v.Helper()
	// A process that was killed may still use the volume for a moment.
	var out []byte
	var err error
	for range 3000 {
		if out, err = exec.Command("umount", v.dir).CombinedOutput(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = exec.Command("umount", "-l", v.dir).Run()
	v.Fatalf("umount: %v\n%s", err, out)
}

// cut simulates a power cut. Data in the journal that is not yet on disk is lost too.
func (v *volume) cut() error {
	const shutdown, noLogFlush = 0x8004587d, 2
	f, err := os.Open(v.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return fmt.Errorf("the file system does not shut down: %w", errno)
	}
	return nil
}

// restorePower mounts the file system again, which replays its journal.
func (v *volume) restorePower() {
	v.Helper()
	v.unmount()
	if err := v.mount(); err != nil {
		v.Fatal(err)
	}
}

func (v *volume) clear() {
	v.Helper()
	files, err := filepath.Glob(filepath.Join(v.dir, "*.db*")) // includes hidden files
	for _, path := range files {
		err = errors.Join(err, os.Remove(path))
	}
	d, openErr := os.Open(v.dir)
	if openErr == nil {
		openErr = errors.Join(d.Sync(), d.Close())
	}
	if err := errors.Join(err, openErr); err != nil {
		v.Fatal(err)
	}
}

// onVolumes tests a store on a volume. Each process of the test ends with a power cut.
var onVolumes = kill.Harness{Backups: true, Open: func(place, flaw string) (*store.Store, error) {
	if flaw == "relaxed" {
		return setting{noSync: true}.open(place)
	}
	return setting{snapshots: true, flaw: flaw}.open(place)
}}

func init() { onVolumes.Child() }

func (v *volume) harness() kill.Harness {
	h := onVolumes
	h.Cut = func(string) error { return v.cut() }
	h.Restore = func(string) error { v.restorePower(); return nil }
	return h
}

func TestCuts(t *testing.T) {
	few := 3
	if testing.Short() {
		few = 1
	}
	v := newVolume(t)
	v.harness().Check(t, few, 25, func() string {
		v.clear()
		return filepath.Join(v.dir, fileName)
	})
}

// If a store does not sync, the harness detects that data is lost. Otherwise, TestCuts would prove nothing.
func TestCutsControl(t *testing.T) {
	v := newVolume(t)
	v.harness().Finds(t, "relaxed", filepath.Join(v.dir, fileName))
}
