//go:build linux && (amd64 || arm64)

package power

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/patchlog-dev/patchlog/internal/fuzz/linear"
	"github.com/patchlog-dev/patchlog/internal/fuzz/long"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/store"
)

// errnosByCall lists the errors with which each system call may fail.
var errnosByCall = map[string][]unix.Errno{
	"write":    {unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EINTR},
	"sync":     {unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EINTR},
	"fsync":    {unix.EIO, unix.ENOSPC, unix.EDQUOT, unix.EINTR},
	"truncate": {unix.EIO, unix.ENOSPC, unix.EFBIG, unix.EINTR},
	"rename":   {unix.EIO, unix.ENOSPC},
	"link":     {unix.EIO, unix.ENOSPC},
	"unlink":   {unix.EIO},
}

// faultsOf returns the faults of a call. Each error occurs once, and one error also occurs in several calls in a
// row.
func faultsOf(n int, name string, random *rand.Rand) (faults []fault) {
	add := func(f fault) {
		f.n, f.name, f.doom = n, name, syncFailure(random.IntN(int(numSyncFailures)))
		faults = append(faults, f)
	}
	for _, errno := range errnosByCall[name] {
		add(fault{errno: errno, times: 1})
	}
	if name == "write" {
		add(fault{short: true, times: 1})
		add(fault{errno: unix.ENOSPC, short: true, times: 1 + random.IntN(8)})
	}
	if name != "unlink" {
		add(fault{errno: errnosByCall[name][random.IntN(2)], times: 2 + random.IntN(40)})
	}
	return faults
}

// segment is a sequence of operations on a file, which is repeated for each fault.
type segment struct {
	testing.TB
	setting
	tap    *tap
	room   string
	start  *disk
	before map[store.Key]string
	round  int
}

// A segment has operations operations, with about ten commits. After a fault, operationsAfter more operations
// follow.
const operations, operationsAfter = 16, 6

func newSegment(t testing.TB, o setting) *segment {
	t.Helper()
	return &segment{TB: t, setting: o, tap: needTap(t), room: newDir(t), start: newDisk()}
}

// runWith runs the operations of the segment with a fault, and some operations after the fault.
func (g *segment) runWith(f fault) (r *run, err error) {
	g.Helper()
	g.snapshots = g.round%2 == 1
	r = newRun(g, g.room, g.start, g.setting, f)
	r.before = g.before
	l := &linear.Load{Clients: 3, Apps: 1, Name: fmt.Sprint("segment ", g.round), Seed: uint64(g.round), Forks: true, Backups: g.room}
	r.load = l
	l.Begin()
	defer g.tap.start(r.decide)()
	if err := r.open(); err != nil {
		return r, err
	}
	l.Callers = []ops.Caller{&ops.Local{Store: r.store}}
	l.Create()
	pick := rand.New(rand.NewPCG(uint64(g.round), 1))
	for n, more := 0, operationsAfter; n < operations || r.hasFailed() && more > 0 || r.hasFailed() && r.left.Load() > 0 && n < 100; n++ {
		if r.hasFailed() && r.left.Load() <= 0 {
			if r.crashTime == 0 {
				r.crashTime = l.Since().Nanoseconds()
			}
			more--
		}
		l.Step(pick.IntN(l.Clients))
	}
	for _, e := range l.History() {
		if (r.n == 0 || r.crashTime > 0 && e.From > r.crashTime) && (e.Outcome == ops.Failed || e.Outcome == ops.Unknown) {
			err = errors.Join(err, fmt.Errorf("an operation fails without a fault: %v", e))
		}
	}
	if closeErr := r.store.Close(); closeErr != nil && !r.hasFailed() {
		err = errors.Join(err, fmt.Errorf("close: %w", closeErr))
	}
	return r, err
}

// try runs the operations of the segment with a fault. It cuts the power at some moments after the fault and at the
// end, and checks the store each time. It also checks the store without a power cut.
func (g *segment) try(f fault, random *rand.Rand, count func(string, int)) error {
	r, err := g.runWith(f)
	defer os.RemoveAll(r.dir)
	if err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	if r.firstFailed >= 0 {
		count("faults", 1)
		count("of a "+r.calls[f.n-1].name, 1)
	}
	if err := r.checkSteps(); err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	first := max(r.firstFailed, 0)
	for _, at := range []int{len(r.steps), first + random.IntN(len(r.steps)-first+1), first + random.IntN(len(r.steps)-first+1)} {
		count("power cuts", 1)
		dir, _, err := r.cut(at, random)
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			return err
		}
	}
	if _, err := r.recover(r.dir, len(r.steps)); err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	return nil
}

// advance runs the operations of the segment without a fault. The next segment starts from the resulting file.
// advance deletes the sessions that were imported as a whole, because they have most of the records in the file, and
// each later fault would check them four times.
func (g *segment) advance() error {
	r, err := g.runWith(fault{})
	if err == nil {
		g.before, err = r.recover(r.dir, len(r.steps))
	}
	if err != nil {
		return err
	}
	s, err := g.open(filepath.Join(r.dir, fileName))
	if err != nil {
		return err
	}
	for key := range g.before {
		if strings.HasPrefix(key.Session, linear.ImportedPrefix) {
			err = errors.Join(err, s.Delete(ctx, key))
			delete(g.before, key)
		}
	}
	err = errors.Join(err, s.Close())
	g.round++
	start, readErr := readDisk(r.dir)
	g.start = start
	return errors.Join(err, readErr, os.RemoveAll(r.dir))
}

// faults returns the faults of the calls in the segment. A vacuum or a backup writes all pages of a draft, which
// have no effect before the draft is renamed. A write between two other writes to the draft therefore fails with
// only one fault. All other calls fail with each fault.
func (g *segment) faults(random *rand.Rand) (faults []fault) {
	g.Helper()
	r, err := g.runWith(fault{})
	if err != nil {
		g.Fatal(err)
	}
	for i, c := range r.calls {
		all := faultsOf(i+1, c.name, random)
		if isDraft := filepath.Base(c.file.path) != fileName; isDraft && i > 0 && i+1 < len(r.calls) && writeSameFile(r.calls[i-1:i+2]) {
			all = sample(all, 1, random)
		}
		faults = append(faults, all...)
	}
	_ = os.RemoveAll(r.dir)
	return faults
}

// writeSameFile reports whether all calls write to the same file.
func writeSameFile(calls []syscall) bool {
	return !slices.ContainsFunc(calls, func(c syscall) bool { return c.name != "write" || c.file.inode != calls[0].file.inode })
}

// segments is the number of segments per file. All segments of a file together have 200 commits.
const segments = 20

func TestFaults(t *testing.T) {
	rounds, maxFaults := 2, 30
	if testing.Short() {
		rounds, maxFaults = 1, 15
	}
	var g *segment
	for r := range long.Rounds(t, rounds) {
		if g == nil || r.N%segments == 0 {
			g = newSegment(t, setting{})
			for g.round = r.N / segments * segments; g.round < max(r.N, 1); { // a resumed run starts at a multiple of segments
				if err := g.advance(); err != nil {
					t.Fatal(err)
				}
			}
		}
		faults := g.faults(r.Random)
		if !long.Long() {
			faults = sample(faults, maxFaults, r.Random)
		}
		for _, f := range faults {
			if err := g.try(f, r.Random, r.Count); err != nil {
				t.Error(err)
				break
			}
		}
		if err := g.advance(); err != nil {
			t.Error(err)
		}
	}
}

// sample returns n faults, with equal shares of each kind of call.
func sample(faults []fault, n int, random *rand.Rand) (some []fault) {
	by := map[string][]fault{}
	for _, f := range faults {
		by[f.name] = append(by[f.name], f)
	}
	for len(some) < min(n, len(faults)) {
		for _, name := range slices.Sorted(maps.Keys(by)) {
			if all := by[name]; len(all) > 0 {
				i := random.IntN(len(all))
				some = append(some, all[i])
				by[name] = slices.Delete(all, i, i+1)
			}
		}
	}
	return some
}

// The harness detects planted faults.
func TestFaultsControls(t *testing.T) {
	for name, c := range map[string]struct {
		setting
		change func(*fault)
	}{
		"writes are not synced":                   {setting: setting{noSync: true}},
		"errors are overlooked":                   {setting: setting{flaw: "optimist"}},
		"nothing is made durable after a failure": {change: func(f *fault) { f.skipSyncs, f.doom = true, syncNothing }},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSegment(t, c.setting)
			random := rand.New(rand.NewPCG(1, 2))
			faults := slices.DeleteFunc(g.faults(random), func(f fault) bool { return f.name != "sync" || f.times > 1 })
			if c.noSync {
				faults = make([]fault, 20) // without syncs, a power cut alone must show the fault
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
			t.Errorf("none of %d faults showed it", len(faults))
		})
	}
}
