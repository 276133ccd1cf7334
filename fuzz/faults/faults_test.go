//go:build linux && (amd64 || arm64)

package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchlog-dev/patchlog/fuzz/internal/load"
	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// fault is what becomes of the n-th call, and of those after it.
type fault struct {
	n     int
	name  string // of the call
	errno unix.Errno
	short bool // a write is cut short, and the rest of it fails, if there is an errno
	times int  // so many calls fail
	lie   bool // of what follows, syncs other than a commit's are not made
	doom  doom
}

func (f fault) String() string {
	text := fmt.Sprintf("call %d, a %s: %v", f.n, f.name, f.errno)
	if f.short {
		text = fmt.Sprintf("call %d, a write that is cut short: %v", f.n, f.errno)
	}
	return fmt.Sprintf("%s, %d times; a sync that fails writes %v", text, f.times, f.doom)
}

// ways are in which calls may fail.
var ways = map[string][]unix.Errno{
	"write":    {unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EINTR},
	"sync":     {unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EINTR},
	"fsync":    {unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EINTR},
	"truncate": {unix.EIO, unix.ENOSPC, unix.EFBIG, unix.EINTR},
	"rename":   {unix.EIO, unix.ENOSPC},
	"link":     {unix.EIO, unix.ENOSPC},
	"unlink":   {unix.EIO},
}

// faultsOf returns what may become of a call: each error once, and one of them many times.
func faultsOf(n int, name string, random *rand.Rand) (faults []fault) {
	add := func(f fault) {
		f.n, f.name, f.doom = n, name, doom(random.IntN(int(dooms)))
		faults = append(faults, f)
	}
	for _, errno := range ways[name] {
		add(fault{errno: errno, times: 1})
	}
	if name == "write" {
		add(fault{short: true, times: 1})
		add(fault{errno: unix.ENOSPC, short: true, times: 1 + random.IntN(8)})
	}
	if name != "unlink" {
		add(fault{errno: ways[name][random.IntN(2)], times: 2 + random.IntN(40)})
	}
	return faults
}

// segment is some commits on a file, which are made again for each fault.
type segment struct {
	t      testing.TB
	tap    *tap
	room   string // for directories
	start  *disk  // with the file
	before load.Content
	round  int
	seed   uint64

	durability store.Durability
	flaw       func(backend.Backend) backend.Backend
}

// Commits of a segment, and calls that are made after a fault.
const commits, after = 10, 6

// run is what a segment came to.
type run struct {
	dir     string
	disk    *disk // at the start
	steps   []step
	journal *load.Journal
	first   int // step that failed; -1: none has
	names   []string
}

// clock is when all happens, so that nothing but faults makes a difference.
var clock = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func (g *segment) open(dir string) (*store.Store, error) {
	path := filepath.Join(dir, "log.db")
	opts := store.Options{
		Durability: g.durability, LockTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Snapshots: snapshot.Policy{Every: -1}, Now: func() time.Time { return clock },
	}
	if g.round%2 == 1 {
		opts.Snapshots = snapshot.Policy{Every: 4, Share: 1}
	}
	if g.flaw == nil {
		return store.Open(path, opts)
	}
	b, err := bolt.Open(path, bolt.Options{LockTimeout: opts.LockTimeout, Logger: opts.Logger})
	if err != nil {
		return nil, err
	}
	return store.New(g.flaw(b), opts)
}

// do makes the segment's commits with a fault, and goes on for a while.
func (g *segment) do(f fault) (r run, err error) {
	ctx := context.Background()
	r = run{first: -1, journal: load.NewJournal()}
	if r.dir, err = os.MkdirTemp(g.room, "run-"); err != nil {
		return r, err
	}
	r.disk = g.start.clone()
	if err := r.disk.lay(r.dir); err != nil {
		return r, err
	}
	var lines atomic.Int64
	var left atomic.Int64 // faults to come
	left.Store(int64(f.times))
	off := g.tap.on(func(c syscall) outcome {
		if !strings.HasPrefix(c.file.path+c.from, r.dir) {
			return outcome{}
		}
		r.names = append(r.names, c.name)
		return r.take(c, f, &left, int(lines.Load()))
	})
	defer off()
	failing := func() bool { return f.n > 0 && left.Load() < int64(f.times) }
	calm := func() bool { return left.Load() == 0 }
	var s *store.Store
	for s == nil {
		if s, err = g.open(r.dir); err != nil && !failing() {
			return r, fmt.Errorf("open: %w", err)
		}
	}
	quiet := false // no call fails any more
	crowd := &load.Crowd{
		Store: s, Round: g.round, Seed: g.seed, Dir: g.room,
		Say: func(l load.Line) {
			_ = r.journal.Hear(l)
			lines.Store(int64(r.journal.Lines))
		},
		Faulty: func() bool { return failing() && !quiet },
	}
	clients := []*load.Client{crowd.Client(0), crowd.Client(1), crowd.Client(load.Clients - 1)}
	pick := rand.New(rand.NewPCG(g.seed, 1))
	for n, more := 0, after; n < commits || failing() && more > 0 || failing() && !calm() && n < 100; n++ {
		if failing() && calm() {
			quiet = true
			more--
		}
		if err := clients[pick.IntN(len(clients))].Step(ctx); err != nil {
			return r, errors.Join(err, s.Close())
		}
	}
	if err := s.Close(); err != nil && !failing() {
		return r, fmt.Errorf("close: %w", err)
	}
	return r, nil
}

// take decides on a call, and keeps what comes of it.
func (r *run) take(c syscall, f fault, left *atomic.Int64, line int) outcome {
	n := len(r.names)
	s := step{syscall: c, line: line}
	var o outcome
	switch {
	case f.n == 0 || n < f.n || left.Load() <= 0:
		if f.lie && r.first >= 0 && c.name == "fsync" {
			o.lie, s.lied = true, true
		}
	case f.errno == 0 && len(c.data) < 2: // this time the call is another, which cannot be cut short
		left.Add(-1)
	case f.short && n == f.n && len(c.data) > 1:
		o.short = 1 + len(c.data)/3
		if s.data = c.data[:o.short]; f.errno == 0 {
			left.Add(-1)
		}
	default:
		o.errno, s.failed = f.errno, true
		left.Add(-1)
	}
	if (o.errno != 0 || o.short > 0) && r.first < 0 {
		r.first = len(r.steps)
	}
	if !s.failed || c.name == "sync" || c.name == "fsync" {
		r.steps = append(r.steps, s)
	}
	return o
}

// settle checks what a store in a directory holds when the journal has come to the given line, and
// nobody knows what came of the calls that were under way.
func (g *segment) settle(dir string, r *run, line int, random *rand.Rand, count func(string, int)) (load.Content, error) {
	s, err := g.open(dir)
	if err != nil {
		return load.Content{}, err
	}
	now, err := load.Settle(context.Background(), s, g.before, r.journal.Cut(line, line), random, count)
	return now, errors.Join(err, s.Close())
}

// cut has the power fail before a step, or at the end, and checks what is left.
func (g *segment) cut(r *run, before int, f fault, random *rand.Rand, count func(string, int)) error {
	dir, err := os.MkdirTemp(g.room, "cut-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := r.disk.clone()
	for _, s := range r.steps[:before] {
		d.apply(r.dir, s, f.doom, random)
	}
	if before == len(r.steps) {
		if err := d.same(r.dir); err != nil {
			return fmt.Errorf("%v: %w", f, err)
		}
	}
	if err := d.cut(dir, random); err != nil {
		return err
	}
	line := r.journal.Lines
	if before < len(r.steps) {
		line = r.steps[before].line
	}
	if _, err = g.settle(dir, r, line, random, count); err != nil {
		return fmt.Errorf("%v; the power fails before step %d of %d (%d is the first that failed): %w", f, before, len(r.steps), r.first, err)
	}
	return nil
}

// cuts has the power fail at some moments after a fault, and at the end.
func (g *segment) cuts(r *run, n int, f fault, random *rand.Rand, count func(string, int)) error {
	first := max(r.first, 0)
	moments := []int{len(r.steps)}
	for range n {
		moments = append(moments, first+random.IntN(len(r.steps)-first+1))
	}
	for _, at := range moments {
		count("power cuts", 1)
		if err := g.cut(r, at, f, random, count); err != nil {
			return err
		}
	}
	return nil
}

// try makes the segment's commits with a fault, checks what is there, and has the power fail.
func (g *segment) try(f fault, random *rand.Rand, count func(string, int)) (err error) {
	r, err := g.do(f)
	defer os.RemoveAll(r.dir)
	if err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	if r.first >= 0 {
		count("faults", 1)
		count("of a "+r.names[f.n-1], 1)
	}
	if err := g.cuts(&r, 2, f, random, count); err != nil {
		return err
	}
	if _, err := g.settle(r.dir, &r, r.journal.Lines, random, count); err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	return nil
}

// next makes the segment's commits without a fault, and goes on from there.
func (g *segment) next(random *rand.Rand, count func(string, int)) error {
	r, err := g.do(fault{})
	if err != nil {
		return err
	}
	if g.before, err = g.settle(r.dir, &r, r.journal.Lines, random, count); err != nil {
		return err
	}
	g.round++
	if g.start, err = read(r.dir); err != nil {
		return err
	}
	return os.RemoveAll(r.dir)
}

// newSegment is the first segment of a new file.
func newSegment(t testing.TB, durability store.Durability) *segment {
	t.Helper()
	g := &segment{t: t, tap: needTap(t), room: roomy(t), durability: durability}
	dir, err := os.MkdirTemp(g.room, "start-")
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(context.Background(), load.Key("anchor"), nil)
	if err == nil {
		g.before, err = load.Read(context.Background(), s)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if g.start, err = read(dir); err != nil {
		t.Fatal(err)
	}
	return g
}

// roomy returns a directory in memory, if there is one: what a disk loses is the model's matter.
func roomy(t testing.TB) string {
	if dir, err := os.MkdirTemp("/dev/shm", "patchlog-faults-"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

// segments are as many as have 200 commits.
const segments = 200 / commits

func TestFaults(t *testing.T) {
	few, most := 2, 30
	if testing.Short() {
		few, most = 1, 15
	}
	var g *segment
	none := func(string, int) {}
	for r := range long.Rounds(t, few) {
		if g == nil || r.N%segments == 0 {
			g = newSegment(t, store.Synced)
			for g.round = r.N / segments * segments; g.round < r.N; { // where a run is gone on with
				g.seed = uint64(g.round)
				if err := g.next(r.Random, none); err != nil {
					t.Fatal(err)
				}
			}
		}
		g.seed = uint64(g.round)
		faults, err := g.faults(r.Random)
		if err != nil {
			t.Fatal(err)
		}
		if !long.Long() {
			r.Random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
			faults = faults[:min(most, len(faults))]
		}
		for _, f := range faults {
			if err := g.try(f, r.Random, r.Count); err != nil {
				t.Error(err)
				break
			}
		}
		r.Count("commits", commits)
		if err := g.next(r.Random, none); err != nil {
			t.Error(err)
		}
	}
}

// faults returns each fault of each call that the segment makes.
func (g *segment) faults(random *rand.Rand) (faults []fault, err error) {
	r, err := g.do(fault{})
	defer os.RemoveAll(r.dir)
	for i, name := range r.names {
		faults = append(faults, faultsOf(i+1, name, random)...)
	}
	return faults, err
}

// What is flawed on purpose is found.
func TestControls(t *testing.T) {
	for name, c := range map[string]struct {
		durability store.Durability
		flaw       func(backend.Backend) backend.Backend
		change     func(*fault)
	}{
		"writes are not synced":                   {durability: store.Relaxed},
		"errors are overlooked":                   {flaw: func(b backend.Backend) backend.Backend { return optimist{b} }},
		"nothing is made durable after a failure": {change: func(f *fault) { f.lie, f.doom = true, nothing }},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSegment(t, c.durability)
			g.flaw = c.flaw
			random := rand.New(rand.NewPCG(1, 2))
			faults, err := g.faults(random)
			if err != nil {
				t.Fatal(err)
			}
			faults = slices.DeleteFunc(faults, func(f fault) bool { return f.name != "sync" || f.times > 1 })
			if c.durability == store.Relaxed {
				faults = make([]fault, 20) // the power alone will do
			}
			for n, f := range faults {
				if c.change != nil {
					c.change(&f)
				}
				if err := g.try(f, random, func(string, int) {}); err != nil {
					t.Logf("fault %d: %.500s", n, err.Error())
					return
				}
			}
			t.Errorf("of %d faults none showed it", len(faults))
		})
	}
}

// optimist takes each commit for made.
type optimist struct{ backend.Backend }

func (o optimist) Append(ctx context.Context, session string, batch backend.Batch) error {
	if err := o.Backend.Append(ctx, session, batch); !errors.Is(err, backend.ErrUnknown) {
		return err
	}
	return nil
}
