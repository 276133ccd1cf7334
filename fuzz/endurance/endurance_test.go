package endurance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

var ctx = context.Background()

func no(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// file is a store and the file that it is in, and what is measured of it.
type file struct {
	t     testing.TB
	round *long.Round
	of    string // what the figures are of
	path  string
	store *store.Store
}

func newFile(t testing.TB, r *long.Round, of string) *file {
	f := &file{t: t, round: r, of: of, path: filepath.Join(t.TempDir(), "log.db")}
	f.open()
	return f
}

// open opens the file. Commits are synced in a long run, of which figures are wanted.
func (f *file) open() {
	opts := store.Options{Logger: slog.New(slog.DiscardHandler)}
	if !long.Long() {
		opts.Durability = store.Relaxed
	}
	var err error
	f.store, err = store.Open(f.path, opts)
	no(f.t, err)
}

func (f *file) close() { no(f.t, f.store.Close()) }

// cost is what a call took.
type cost struct {
	took      time.Duration
	allocated uint64 // bytes, in all
	peak      uint64 // of the heap, above what it was before
}

// measure calls do, and reports what it took.
func (f *file) measure(what string, do func() error) cost {
	f.t.Helper()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	began := time.Now()
	err := do()
	took := time.Since(began)
	close(stop)
	<-stopped
	runtime.ReadMemStats(&after)
	if err != nil {
		f.t.Fatalf("%s, %s: %v", f.of, what, err)
	}
	c := cost{took, after.TotalAlloc - before.TotalAlloc, max(peak.Load(), before.HeapAlloc) - before.HeapAlloc}
	f.report(what+" µs", int(took.Microseconds()))
	if c.peak > 1<<20 { // less is by chance
		f.report(what+" peak MiB", int(c.peak>>20))
	}
	return c
}

// singles is what single calls of one kind took, one after the other.
type singles struct {
	took      []time.Duration
	allocated []uint64
}

func (s *singles) take(do func() error) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	err := do()
	s.took = append(s.took, time.Since(began))
	runtime.ReadMemStats(&after)
	s.allocated = append(s.allocated, after.TotalAlloc-before.TotalAlloc)
	return err
}

// reportSingles reports how long the calls took, and returns what one of them allocates: that in
// the middle, since some had something to do for others, such as a snapshot.
func (f *file) reportSingles(what string, s singles) (allocated uint64) {
	slices.Sort(s.took)
	slices.Sort(s.allocated)
	f.report(what+" p50 µs", int(s.took[len(s.took)/2].Microseconds()))
	f.report(what+" max µs", int(s.took[len(s.took)-1].Microseconds()))
	allocated = s.allocated[len(s.allocated)/2]
	f.report(what+" allocates bytes", int(allocated))
	return allocated
}

func (f *file) report(what string, n int) {
	f.t.Logf("%s: %s: %d", f.of, what, n)
	f.round.Count(f.of+": "+what, n)
}

// held is the memory that is in use when nothing goes on.
func held() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// worse says whether what a call allocates grows by more than it may.
func worse(what string, now, before, times uint64) error {
	if now > times*before+8<<10 {
		return fmt.Errorf("%s allocates %d bytes, and %d before: more than %d times as much", what, now, before, times)
	}
	return nil
}

// whole verifies, backs up, verifies the backup and vacuums. little says that this takes little
// memory: nothing is both large and visible.
func (f *file) whole(little bool) {
	took := f.measure("verify", func() error { return verify(f.store) }).peak
	backup := filepath.Join(f.t.TempDir(), "backup.db")
	took = max(took, f.measure("backup", func() error {
		w, err := os.Create(backup)
		if err != nil {
			return err
		}
		return errors.Join(f.store.Backup(ctx, w), w.Close())
	}).peak)
	if little && took > 256<<20 {
		f.t.Errorf("%s: verify or backup takes %d bytes of memory", f.of, took)
	}
	b, err := store.Open(backup, store.Options{ReadOnly: true, Logger: slog.New(slog.DiscardHandler)})
	no(f.t, err)
	want, got := listed(f.t, f.store), listed(f.t, b)
	if !slices.Equal(want, got) {
		f.t.Errorf("%s: the backup has %d sessions that are not as those of the file, which has %d", f.of, len(got), len(want))
	}
	no(f.t, b.Close())
	f.measure("vacuum", func() error { return f.store.Vacuum(ctx) })
	space, err := f.store.Space(ctx)
	no(f.t, err)
	f.report("live MiB", int(space.Live>>20))
	f.report("file MiB after vacuum", int(space.File>>20))
	if step := int64(16 << 20); space.File > max(2*space.Live, step) {
		f.t.Errorf("%s: %+v", f.of, space)
	}
}

func verify(s *store.Store) error {
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		if err != nil {
			return err
		}
		return errors.New(p.String())
	}
	return nil
}

// listed returns the sessions with their last seqs.
func listed(t testing.TB, s *store.Store) (out []string) {
	t.Helper()
	for info, err := range s.List(ctx, store.ListOptions{}) {
		no(t, err)
		out = append(out, fmt.Sprint(info.Key, " ", info.Creation, " ", info.Seq))
	}
	return out
}

// folded folds the log anew up to a record.
func (f *file) folded(key store.Key, creation string, seq uint64) fold.View {
	f.t.Helper()
	initial, err := f.store.InitialState(ctx, key)
	no(f.t, err)
	v := fold.New(creation, initial)
	for rec, err := range f.store.RawEvents(ctx, key, 1) {
		no(f.t, err)
		if rec.Seq > seq {
			break
		}
		v, err = v.Apply(rec)
		no(f.t, err)
	}
	return v
}

// same reports whether two views are equal: what a snapshot of the one is, is one of the other.
func same(a, b fold.View) error {
	one, err := snapshot.Encode(a)
	if err != nil {
		return err
	}
	other, err := snapshot.Encode(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(one, other) {
		return fmt.Errorf("views at record %d and %d, with %d and %d visible events, are not equal", a.Seq(), b.Seq(), a.Len(), b.Len())
	}
	return nil
}

func event(n int) *patch.Event {
	text := fmt.Sprintf("In step %d the order %d of customer %d went on to the next desk, as was asked for.", n, 4000000+n, n%977)
	e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":"e%d","author":"user","invocationId":"i%d","timestamp":"2026-11-22T00:00:00Z","content":{"role":"user","parts":[{"text":%q}]},"actions":{"stateDelta":{"k%d":%d}}}`, n, n/10, text, n%20, n))
	if err != nil {
		panic(err)
	}
	return e
}
