//go:build linux

package power

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/store"
)

// volume is an ext4 file system in a file, whose power can be cut: the kernel then lets go of all
// that has not been synced, as if it had never been written.
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
	base := room(t)
	v := &volume{t, filepath.Join(base, "image"), filepath.Join(base, volumeName)}
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
	// A process that has just been killed may hold it a moment longer.
	var out []byte
	var err error
	for range 100 {
		if out, err = exec.Command("umount", v.dir).CombinedOutput(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = exec.Command("umount", "-l", v.dir).Run()
	v.Fatalf("umount: %v\n%s", err, out)
}

// cut cuts the power: what is in the journal but not on disk is gone too.
func (v *volume) cut() error {
	const shutdown, noLogFlush = 0x8004587d, 2
	f, err := os.Open(v.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return fmt.Errorf("the file system does not shut down: %w", errno)
	}
	return nil
}

// repower mounts the file system again, which has its journal replayed.
func (v *volume) repower() {
	v.Helper()
	v.unmount()
	if err := v.mount(); err != nil {
		v.Fatal(err)
	}
}

// clear removes all files.
func (v *volume) clear() {
	v.Helper()
	there, err := filepath.Glob(filepath.Join(v.dir, "*.db*")) // hidden ones too
	for _, path := range there {
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

// left returns the files of the volume.
func (v *volume) left(how string) state {
	v.Helper()
	out := state{how: how, files: map[string]*content{}}
	there, err := os.ReadDir(v.dir)
	if err != nil {
		v.Fatal(err)
	}
	for _, e := range there {
		if !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(v.dir, e.Name()))
		if err != nil {
			v.Fatal(err)
		}
		out.files[e.Name()] = &content{data: bytes.TrimRight(data, "\x00"), size: int64(len(data))}
	}
	return out
}

// work has a process do a script, and cuts the power under it some time after it said so many
// lines. It returns how many were heard.
func (v *volume) work(m *model, at int, after time.Duration) (lines int) {
	v.Helper()
	cmd := child(v, job{Script: m.script, Dir: v.dir})
	out, err := cmd.StdoutPipe()
	if err != nil {
		v.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		v.Fatal(err)
	}
	dark := make(chan error, 1)
	var timer *time.Timer
	begin := func() {
		timer = time.AfterFunc(after, func() {
			dark <- v.cut()
			_ = cmd.Process.Kill()
		})
	}
	if at == 0 {
		begin()
	}
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	for ; err == nil; line, err = said.ReadString('\n') {
		if err := m.heard(strings.TrimSuffix(line, "\n"), lines); err != nil {
			v.Error(err)
		}
		if lines++; lines == at {
			begin()
		}
	}
	_ = cmd.Wait()
	if timer == nil || timer.Stop() { // the script is at its end
		dark <- v.cut()
	}
	if err := <-dark; err != nil {
		v.Fatal(err)
	}
	v.repower()
	return lines
}

// round cuts the power under a script, and checks what is left.
func (v *volume) round(random *rand.Rand, tag string, durability store.Durability, count func(string, int)) error {
	v.Helper()
	if random.IntN(5) == 0 {
		v.clear()
	}
	logs, err := logsOf(v.dir)
	if err != nil {
		v.Fatal(err)
	}
	s := write(random, tag, slices.Sorted(maps.Keys(logs)))
	s.Durability = durability
	m := newModel(s, logs)
	backups, err := filepath.Glob(filepath.Join(v.dir, "backup*"))
	for _, path := range backups {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		v.Fatal(err)
	}
	at, after := 1+random.IntN(2*len(m.tries)), random.IntN(4_000)
	if logs == nil && random.IntN(2) == 0 {
		at, after = 0, random.IntN(60_000) // while the file is made
	}
	lines := v.work(m, at, time.Duration(after)*time.Microsecond)
	count("lines", lines)
	_, done := m.progress()
	count("acknowledged", len(done))
	left := v.left(fmt.Sprintf("after line %d", lines))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	under, err := m.check(ctx, v.dir, bounds{lo: lines, hi: lines}, random.IntN(8) == 0)
	count("calls under way", under)
	if m.opened == never {
		count("cuts before there was a file", 1)
	}
	if err != nil {
		return &failed{left, lines, err}
	}
	return nil
}

// Whenever the power fails, nothing is lost that was acknowledged, nothing is altered, no half of a
// commit is there, and what is tried again lands once.
func TestCuts(t *testing.T) {
	cuts := 3
	if testing.Short() {
		cuts = 1
	}
	v := newVolume(t)
	for round := range long.Rounds(t, cuts) {
		if err := v.round(round.Random, fmt.Sprintf("c%d", round.N), store.Synced, round.Count); err != nil {
			keep(t, err)
		}
	}
}

// What is not synced must be lost, or the test above proves nothing.
func TestCutsFindWhatIsLost(t *testing.T) {
	v := newVolume(t)
	random := rand.New(rand.NewPCG(1, 1))
	for n := range 5 {
		err := v.round(random, fmt.Sprintf("l%d", n), store.Relaxed, func(string, int) {})
		if err != nil {
			t.Logf("cut %d: %.300v", n, err)
			return
		}
	}
	t.Error("no cut is found to have lost anything")
}
