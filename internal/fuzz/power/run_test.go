//go:build linux && (amd64 || arm64)

package power

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchlog-dev/patchlog/internal/fuzz/kill"
	"github.com/patchlog-dev/patchlog/internal/fuzz/linear"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

var ctx = context.Background()

const fileName = "log.db"

// setting determines how a store is opened.
type setting struct {
	noSync    bool
	snapshots bool
	flaw      string
}

func (o setting) open(path string) (*store.Store, error) {
	opts := store.Options{
		NoSync: o.noSync, LockTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Snapshots: snapshot.Policy{Every: -1},
	}
	if o.snapshots {
		opts.Snapshots = snapshot.Policy{Every: 4, MinPercent: 1}
	}
	if o.flaw == "" {
		return store.Open(path, opts)
	}
	b, err := bolt.Open(path, bolt.Options{LockTimeout: opts.LockTimeout, Logger: opts.Logger})
	if err != nil {
		return nil, err
	}
	return store.New(ops.Flaws[o.flaw](b), opts)
}

// fault is the failure of the n-th system call and of calls after it.
type fault struct {
	n         int
	name      string // name of the system call
	errno     unix.Errno
	short     bool // whether only a part is written; if errno is set, the next write fails
	times     int  // number of calls that fail
	skipSyncs bool // whether later syncs are skipped silently, except the syncs of commits
	doom      syncFailure
}

func (f fault) String() string {
	text := fmt.Sprintf("call %d, a %s: %v", f.n, f.name, f.errno)
	if f.short {
		text = fmt.Sprintf("call %d, a write that is cut short: %v", f.n, f.errno)
	}
	return fmt.Sprintf("%s, %d times; a sync that fails writes %v", text, f.times, f.doom)
}

// step is a system call that was made, or was reported as done.
type step struct {
	syscall
	failed  bool  // whether the sync failed
	skipped bool  // whether the call was skipped and reported as done
	moment  int64 // time of the call on the load's clock
}

// run is the recorded work of a load on a disk with files.
type run struct {
	setting
	fault
	room, dir string
	start     *disk
	before    map[store.Key]string // key: session; value: the log at the start
	load      *linear.Load
	store     *store.Store

	left    atomic.Int64    // number of faults that have not occurred yet
	written map[uint64]bool // key: inode number; value: whether the tap has seen a write
	frozen  atomic.Bool     // whether the process has crashed, so that no call is made
	crashAt int             // index of the call at which the process crashes; 0 means never
	calls   []syscall       // calls in order

	mu          sync.Mutex // shows the race detector that the kernel orders the calls that the tap sees
	steps       []step
	firstFailed int // index of the failed step, or -1
	crashTime   int64
}

// newRun writes the files of a disk into a new directory and starts to record.
func newRun(t testing.TB, room string, start *disk, o setting, f fault) *run {
	t.Helper()
	dir, err := os.MkdirTemp(room, "run-")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{setting: o, fault: f, room: room, dir: dir, start: start.clone(), firstFailed: -1, written: map[uint64]bool{}}
	if err := r.start.writeTo(dir); err != nil {
		t.Fatal(err)
	}
	for inode := range r.start.inodes {
		r.written[inode] = true
	}
	r.left.Store(int64(f.times))
	return r
}

func (r *run) hasFailed() bool { return r.n > 0 && r.left.Load() < int64(r.times) }

// open opens the store. If a fault makes the first attempt fail, open tries again.
func (r *run) open() (err error) {
	for r.store = nil; r.store == nil; {
		if r.store, err = r.setting.open(filepath.Join(r.dir, fileName)); err != nil && !r.hasFailed() {
			return fmt.Errorf("open: %w", err)
		}
	}
	return nil
}

// decide decides the outcome of a system call and records its effect. The calls reach it one after the other.
func (r *run) decide(c syscall) (o outcome) {
	if !strings.HasPrefix(c.file.path+c.from, r.dir) {
		return o
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	if n := len(r.calls); r.frozen.Load() || n == r.crashAt {
		if !r.frozen.Swap(true) {
			r.crashTime = r.load.Since().Nanoseconds()
		}
		return outcome{errno: unix.EIO}
	}
	s := step{syscall: c}
	if r.load != nil {
		s.moment = r.load.Since().Nanoseconds()
	}
	switch n := len(r.calls); {
	case r.n == 0 || n < r.n || r.left.Load() <= 0:
		if r.skipSyncs && r.firstFailed >= 0 && c.name == "fsync" {
			o.skip, s.skipped = true, true
		}
	case r.errno == 0 && len(c.data) < 2: // in this run, the n-th call is too short to be cut short
		r.left.Add(-1)
	case r.short && n == r.n && len(c.data) > 1:
		o.short = 1 + len(c.data)/3
		if s.data = c.data[:o.short]; r.errno == 0 {
			r.left.Add(-1)
		}
	default:
		o.errno, s.failed = r.errno, true
		r.left.Add(-1)
	}
	if (o.errno != 0 || o.short > 0) && r.firstFailed < 0 {
		r.firstFailed = len(r.steps)
	}
	if s.name == "write" {
		r.written[c.file.inode] = true
	}
	if isSync := c.name == "sync" || c.name == "fsync"; isSync && !c.file.dir && !r.written[c.file.inode] {
		// The file was written by calls that the tap does not see. The sync makes the current content durable.
		all := s
		all.name, all.data, all.failed = "write", r.contentOf(c.file), false
		r.steps = append(r.steps, all, s)
	} else if !s.failed || isSync {
		r.steps = append(r.steps, s)
	}
	return o
}

func (r *run) contentOf(f file) []byte {
	data, err := os.ReadFile(f.path)
	if err != nil {
		panic(err)
	}
	return data
}

// moment returns the time of a step on the load's clock. If there is no such step, it returns the current time.
func (r *run) moment(before int) int64 {
	if before < len(r.steps) {
		return r.steps[before].moment
	}
	return r.load.Since().Nanoseconds()
}

// recover checks the store in a directory. The directory has the files after an interruption before a step, or at
// the end.
func (r *run) recover(dir string, before int) (logs map[store.Key]string, err error) {
	s, err := r.setting.open(filepath.Join(dir, fileName))
	if err != nil {
		return nil, err
	}
	l := r.load.Until(r.moment(before))
	logs, err = kill.Recover(ctx, l, &ops.Local{Store: s}, r.before)
	err = errors.Join(err, s.Close())
	for _, violation := range r.judge(l.History(), before) {
		err = errors.Join(err, errors.New(violation))
	}
	return logs, err
}

// diskBefore returns the disk before a step. If the step is len(r.steps), it returns the disk at the end.
func (r *run) diskBefore(step int, random *rand.Rand) *disk {
	d := r.start.clone()
	for _, s := range r.steps[:step] {
		d.apply(r.dir, s, r.doom, random)
	}
	return d
}

// cut simulates a power cut before a step or at the end, and checks the store. It returns the logs and the
// directory, which the caller must remove.
func (r *run) cut(before int, random *rand.Rand) (dir string, logs map[store.Key]string, err error) {
	dir, err = os.MkdirTemp(r.room, "cut-")
	if err != nil {
		return dir, nil, err
	}
	how, err := r.diskBefore(before, random).cut(dir, random)
	if err == nil {
		logs, err = r.recover(dir, before)
	}
	if err != nil {
		err = fmt.Errorf("power cut before step %d of %d, %s; fault: %v; %d is the first step that failed: %w", before, len(r.steps), how, r.fault, r.firstFailed, err)
	}
	return dir, logs, err
}

// checkSteps returns an error if the recorded steps do not produce the directory.
func (r *run) checkSteps() error {
	r.mu.Lock()
	end := len(r.steps)
	r.mu.Unlock()
	return r.diskBefore(end, rand.New(rand.NewPCG(0, 0))).compareWith(r.dir)
}

// newDir returns a directory for the test. The directory is in memory if possible, because the test only models the
// loss of data.
func newDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "patchlog-power-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
