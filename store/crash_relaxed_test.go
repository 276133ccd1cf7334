//go:build linux

package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

func init() {
	parts["crowd, synced"] = func(path string) error { return writeUntilKilled(path, store.Synced) }
	parts["crowd, relaxed"] = func(path string) error { return writeUntilKilled(path, store.Relaxed) }
}

// partOf is the part of a process that writes with the given durability until it is
// killed.
var partOf = map[store.Durability]string{store.Synced: "crowd, synced", store.Relaxed: "crowd, relaxed"}

const crowdSessions, crowdWriters = 3, 9

// crowdKey is the session that a try goes to: the first part of its id says which.
func crowdKey(id string) store.Key {
	session, _, _ := strings.Cut(id, "-")
	return store.Key{App: "app", User: "crowd", Session: session}
}

// crashEvents are what one try appends: two events, so that half of it would show.
func crashEvents(id string) []*patch.Event {
	return []*patch.Event{event(`{"id":"%s","content":{"parts":[{"text":"%0300d"}]}}`, id, len(id)), event(`{"id":"%s-b"}`, id)}
}

// crowdWrite makes or repeats a try: two events, or now and then a patch.
func crowdWrite(s *store.Store, id string) error {
	k, err := strconv.Atoi(id[strings.LastIndex(id, "-")+1:])
	if err == nil && k%10 == 9 {
		_, err = s.ApplyPatch(ctx, crowdKey(id), asOfNow, patch.NewSplice(0, 1).WithID(id))
	} else if err == nil {
		_, err = s.AppendEvents(ctx, crowdKey(id), store.AppendOptions{}, crashEvents(id)...)
	}
	return err
}

func crowdOptions(d store.Durability) store.Options {
	return store.Options{
		Durability: d, Snapshots: snapshot.Policy{Every: 16}, LockTimeout: 5 * time.Second,
		Logger: slog.New(slog.DiscardHandler), // snapshots fail when the power does
	}
}

// writeUntilKilled writes to several sessions, from several goroutines each, and says of
// each write that it will try it and that it was acknowledged. It ends when a write
// fails, as all do once the file system is gone.
func writeUntilKilled(path string, d store.Durability) error {
	s, err := store.Open(path, crowdOptions(d))
	if err != nil {
		return err
	}
	for i := range crowdSessions {
		if _, err := s.Create(ctx, crowdKey(fmt.Sprint(i)), nil); err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	var mu sync.Mutex // lines whole
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(line)
	}
	together(crowdWriters, func(i int) {
		for k := 0; ; k++ {
			id := fmt.Sprint(i%crowdSessions, "-", os.Getpid(), "-", i, "-", k)
			say("try " + id)
			if err := crowdWrite(s, id); err != nil {
				return
			}
			say("ack " + id)
		}
	})
	return nil
}

// crowd is what processes that were killed had tried, and what was acknowledged to them.
type crowd struct {
	tried        []string
	acknowledged map[string]bool
}

// run runs a process that writes, and ends it after some tens of milliseconds of work.
// end is called before the process is killed.
func (c *crowd) run(t *testing.T, path string, d store.Durability, end func()) {
	t.Helper()
	cmd := child(t, partOf[d], path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	var ended sync.WaitGroup
	n := 0
	for line, err := lines.ReadString('\n'); ; line, err = lines.ReadString('\n') {
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == crowdWriters { // it is at work
			ended.Go(func() {
				time.Sleep(time.Duration(20+rand.IntN(50)) * time.Millisecond)
				end()
				_ = cmd.Process.Kill()
			})
		}
		switch word, id, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); word {
		case "try":
			c.tried = append(c.tried, id)
		case "ack":
			c.acknowledged[id] = true
		default:
			t.Errorf("the process says %q", line)
		}
	}
	ended.Wait()
	_ = cmd.Wait()
	if n < crowdWriters {
		t.Fatalf("the process ended after %d lines", n)
	}
}

// lost returns how many writes that were acknowledged are not in the file, or not whole.
// What cannot be read is lost.
func (c *crowd) lost(t *testing.T, s *store.Store) int {
	t.Helper()
	there := map[string]int{}
	for i := range crowdSessions {
		for r, err := range s.RawEvents(ctx, crowdKey(fmt.Sprint(i)), 1) {
			if err != nil {
				if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrCorrupt) {
					t.Fatal(err)
				}
				break
			}
			there[r.ID()]++
			if r.Patch != nil {
				there[r.ID()+"-b"]++ // has no second half
			}
		}
	}
	lost := 0
	for _, id := range c.tried {
		a, b := there[id], there[id+"-b"]
		if a > 1 || a != b && c.acknowledged[id] {
			t.Errorf("%s is there %d times, its second event %d times", id, a, b)
		}
		if c.acknowledged[id] && a == 0 {
			lost++
		}
	}
	return lost
}

// settle checks that nothing acknowledged is lost and nothing is wrong, tries again what
// was not acknowledged, and checks that this lands everything once.
func (c *crowd) settle(t *testing.T, path string, d store.Durability) {
	t.Helper()
	s, err := store.Open(path, crowdOptions(d))
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s}
	if n := c.lost(t, s); n > 0 {
		t.Errorf("%d of %d acknowledged writes are lost", n, len(c.acknowledged))
	}
	e.isHealthy(store.VerifyOptions{})
	want := 0
	for _, id := range c.tried {
		if err := crowdWrite(s, id); err != nil {
			t.Errorf("retry of %s: %v", id, err)
		}
		c.acknowledged[id] = true
		want += 2
		if strings.HasSuffix(id, "9") {
			want--
		}
	}
	c.lost(t, s)
	records := 0
	for i := range crowdSessions {
		records += len(e.records(crowdKey(fmt.Sprint(i))))
	}
	if records != want {
		t.Errorf("%d records after all retries, want %d", records, want)
	}
	e.isHealthy(store.VerifyOptions{})
	e.no(s.Close())
}

// disk is an ext4 file system in a file, whose power can be cut: the kernel then lets go
// of all that has not been synced, as if it had never been written.
type disk struct {
	t          *testing.T
	image, dir string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system whose power can be cut")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, to make a file system whose power can be cut", tool)
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

// cut cuts the power: what is in the journal but not on disk is gone too.
func (d *disk) cut() {
	const shutdown, noLogFlush = 0x8004587d, 2
	f, err := os.Open(d.dir)
	if err != nil {
		d.t.Error(err)
		return
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		d.t.Errorf("the file system does not shut down: %v", errno)
	}
}

// repower mounts the file system again, which has its journal replayed.
func (d *disk) repower() {
	d.t.Helper()
	d.unmount()
	if err := d.mount(); err != nil {
		d.t.Fatal(err)
	}
}
