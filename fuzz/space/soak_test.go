package space_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// soak is a store that all there is to do is done to, over many rounds.
type soak struct {
	t       testing.TB
	path    string
	store   *store.Store
	compact *compaction.Compactor[store.Key]
	writers []*writer
}

// writer writes to sessions of its own, and knows what is in them.
type writer struct {
	*soak
	n        int
	next     int
	made     [soakSessions]int // how often each session was created: a name is not used again
	sessions map[int][]string  // the ids of the records, patches left out
}

const (
	soakWriters  = 6
	soakSessions = 5 // of each writer
	longest      = 250
)

func newSoak(t testing.TB) *soak {
	path := filepath.Join(t.TempDir(), "log.db")
	opts := relaxed()
	opts.Snapshots = snapshot.Policy{Every: 16}
	s, err := store.Open(path, opts)
	no(t, err)
	t.Cleanup(func() { no(t, s.Close()) })
	// Something to hold on to, so that the steps in which a file grows count for little.
	fill(t, s, 8, 1500)
	c, err := compaction.New(s, compaction.Config{Enabled: true, CompactionInterval: 12, OverlapSize: 1}, compaction.Options[store.Key]{Logger: quiet()})
	no(t, err)
	k := &soak{t: t, path: path, store: s, compact: c}
	for n := range soakWriters {
		k.writers = append(k.writers, &writer{soak: k, n: n, sessions: map[int][]string{}})
	}
	return k
}

func (w *writer) key(i int) store.Key { return keyOf(fmt.Sprint("w", w.n, "-", i), w.made[i]) }

// step does something, and holds what it finds against what the writer knows.
func (w *writer) step(random *rand.Rand) error {
	i := random.IntN(soakSessions)
	key := w.key(i)
	ids, there := w.sessions[i]
	if !there {
		_, err := w.store.Create(ctx, key, map[string]any{"step": w.next})
		w.sessions[i] = []string{}
		return err
	}
	if len(ids) > longest {
		return w.remove(i)
	}
	switch random.IntN(16) {
	case 0:
		_, err := w.compact.Compact(ctx, key, compaction.Run{})
		return err
	case 1:
		return w.cut(key, random)
	case 2:
		return w.remove(i)
	case 3:
		return w.fork(i, random)
	case 4:
		return w.imports(i)
	case 5:
		return w.read(key, ids, random)
	case 6:
		_, err := w.store.Search(ctx, key, recall.Search{Query: "0000", Limit: 3})
		return err
	}
	return w.append(i, 1+random.IntN(8))
}

func (w *writer) remove(i int) error {
	key := w.key(i)
	delete(w.sessions, i)
	w.made[i]++
	return w.store.Delete(ctx, key)
}

func (w *writer) append(i, n int) error {
	var events []*patch.Event
	for range n {
		w.next++
		events = append(events, event(fmt.Sprint(w.n, "-", w.next), 200))
	}
	_, err := w.store.AppendEvents(ctx, w.key(i), store.AppendOptions{}, events...)
	for _, e := range events {
		w.sessions[i] = append(w.sessions[i], e.ID())
	}
	return err
}

// cut takes something out, and now and then takes that back.
func (w *writer) cut(key store.Key, random *rand.Rand) error {
	view, err := w.store.View(ctx, key)
	if err != nil || view.Len() == 0 {
		return err
	}
	start := random.IntN(view.Len())
	made, err := w.store.ApplyPatch(ctx, key, store.PatchOptions{On: view}, patch.NewSplice(start, 1+random.IntN(min(4, view.Len()-start))))
	if err != nil || random.IntN(2) == 0 {
		return err
	}
	_, err = w.store.Revert(ctx, key, store.BackOptions{}, made.Records[0].ID())
	return err
}

func (w *writer) fork(i int, random *rand.Rand) error {
	to := (i + 1 + random.IntN(soakSessions-1)) % soakSessions
	if _, there := w.sessions[to]; there {
		if err := w.remove(to); err != nil {
			return err
		}
	}
	_, err := w.store.Fork(ctx, w.key(i), w.key(to), store.ForkOptions{})
	w.sessions[to] = append([]string{}, w.sessions[i]...)
	return err
}

// imports exports a session, and imports it anew.
func (w *writer) imports(i int) error {
	var text bytes.Buffer
	key := w.key(i)
	if err := w.store.Export(ctx, key, &text, store.ExportOptions{}); err != nil {
		return err
	}
	if err := w.store.Delete(ctx, key); err != nil {
		return err
	}
	_, err := w.store.Import(ctx, key, &text, store.ImportOptions{})
	return err
}

// read reads a session in its ways.
func (w *writer) read(key store.Key, ids []string, random *rand.Rand) error {
	n, last := 0, uint64(0)
	for rec, err := range w.store.RawEvents(ctx, key, 1) {
		if err != nil {
			return err
		}
		if last++; rec.Seq != last {
			return fmt.Errorf("%v: record %d after record %d", key, rec.Seq, last-1)
		}
		if rec.Event == nil {
			continue
		}
		if n >= len(ids) || rec.ID() != ids[n] {
			return fmt.Errorf("%v: event %d is %s, of %d", key, n, rec.ID(), len(ids))
		}
		n++
	}
	if n != len(ids) {
		return fmt.Errorf("%v: %d events, want %d", key, n, len(ids))
	}
	if last == 0 {
		return nil
	}
	if _, err := w.store.ViewAt(ctx, key, 1+random.Uint64N(last)); err != nil {
		return err
	}
	watched := uint64(0)
	for _, err := range w.store.Watch(ctx, key, 1) {
		if err != nil {
			return err
		}
		if watched++; watched == last {
			break
		}
	}
	return nil
}

// others is what is done to the whole store while writers write.
func (k *soak) others(dir string) []func() error {
	return []func() error{
		func() error { return verify(ctx, k.store) },
		func() error { return backedUp(k.store, dir) },
		func() error { return k.store.Vacuum(ctx) },
	}
}

// round makes so many steps of each writer, while the store is verified, backed up and
// vacuumed at least once each.
func (k *soak) round(r *long.Round, steps int) error {
	var failed atomic.Pointer[error]
	fail := func(what string, err error) {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
			failed.CompareAndSwap(nil, &err)
		}
	}
	var writing, doing sync.WaitGroup
	ended := make(chan struct{})
	for _, w := range k.writers {
		random := rand.New(rand.NewPCG(r.Random.Uint64(), 0))
		writing.Go(func() {
			for n := 0; n < steps && failed.Load() == nil; n++ {
				fail(fmt.Sprint("writer ", w.n), w.step(random))
				r.Count("steps", 1)
			}
		})
	}
	for i, do := range k.others(k.t.TempDir()) {
		what := []string{"verify", "backup", "vacuum"}[i]
		doing.Go(func() {
			for more := true; more && failed.Load() == nil; {
				fail(what, do())
				r.Count(what, 1)
				select {
				case <-ended:
					more = false
				default:
				}
			}
		})
	}
	writing.Wait()
	close(ended)
	doing.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	for _, w := range k.writers {
		for i, ids := range w.sessions {
			if err := w.read(w.key(i), ids, r.Random); err != nil {
				return err
			}
		}
	}
	return verify(ctx, k.store)
}

// vacuumed vacuums, and says whether the file is then longer than it should be.
func vacuumed(k *soak, vacuum func(context.Context) error) error {
	if err := vacuum(ctx); err != nil {
		return err
	}
	space, err := k.store.Space(ctx)
	if err != nil {
		return err
	}
	read, err := stored(k.store)
	if err != nil {
		return err
	}
	if size := sizeOf(k.t, k.path); size != space.File || size > 2*space.Live {
		return fmt.Errorf("the file takes %d bytes, %+v", size, space)
	}
	if space.Live > read+read/4 { // snapshots and shared values come on top
		return fmt.Errorf("%d bytes are said to be live; all records that can be read take %d", space.Live, read)
	}
	return nil
}

// stored returns what all that can be read takes as it is stored: records and their keys, and the
// rows of their ids.
func stored(s *store.Store) (n int64, err error) {
	for info, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			return 0, err
		}
		for rec, err := range s.RawEvents(ctx, info.Key, 1) {
			if err != nil {
				return 0, err
			}
			data, err := patch.AppendRecord(nil, rec)
			if err != nil {
				return 0, err
			}
			n += int64(16 + len(data))
			for range rec.IDs() {
				n += 32
			}
		}
	}
	return n, nil
}

// resting returns how many goroutines there are, and how much memory is in use, when nothing
// goes on any more.
func resting(most int) (goroutines int, heap uint64) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if goroutines = runtime.NumGoroutine(); goroutines <= most || time.Since(began) > 10*time.Second {
			break
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return goroutines, m.HeapAlloc
}

// spent says whether more is in use than there was before.
func spent(goroutines, least int, heap, before uint64) error {
	var errs []error
	if goroutines > least {
		errs = append(errs, fmt.Errorf("%d goroutines are left, of %d", goroutines, least))
	}
	// What the caches may take differs from one moment to the next.
	if heap > before+6<<20 {
		errs = append(errs, fmt.Errorf("%d bytes of memory are in use, %d before", heap, before))
	}
	return errors.Join(errs...)
}

func TestSoak(t *testing.T) {
	k := newSoak(t)
	least, before := resting(math.MaxInt)
	steps := 40
	switch {
	case long.Long():
		steps = 300
	case testing.Short():
		steps = 15
	}
	for r := range long.Rounds(t, 2) {
		if err := k.round(r, steps); err != nil {
			t.Error(err)
			continue
		}
		if err := vacuumed(k, k.store.Vacuum); err != nil {
			t.Error(err)
		}
		goroutines, heap := resting(least)
		if err := spent(goroutines, least, heap, before); err != nil {
			t.Error(err)
		}
	}
}

// A vacuum that does nothing is reported, and so is what is left running, or held.
func TestControlSoak(t *testing.T) {
	k := newSoak(t)
	for i := range 6 {
		no(t, k.store.Delete(ctx, keyOf("filled", i)))
	}
	if err := vacuumed(k, func(context.Context) error { return nil }); err == nil {
		t.Error("a vacuum does nothing, and it is not reported")
	}
	no(t, vacuumed(k, k.store.Vacuum))
	least, before := resting(math.MaxInt)
	end := make(chan []byte)
	go func() { <-end }()
	if err := spent(runtime.NumGoroutine(), least, before, before); err == nil {
		t.Error("a goroutine is left, and it is not reported")
	}
	held := make([]byte, 32<<20)
	if _, heap := resting(math.MaxInt); spent(least, least, heap, before) == nil {
		t.Errorf("%d bytes are held, and it is not reported", len(held))
	}
	end <- held
}
