package space_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/fuzz/linear"
	"github.com/patchlog-dev/patchlog/fuzz/ops"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// soak is a store that every operation is done to, over many rounds.
type soak struct {
	t       testing.TB
	path    string
	store   *store.Store
	compact *compaction.Compactor[store.Key]
	n       int // of events
}

func newSoak(t testing.TB) *soak {
	path := filepath.Join(t.TempDir(), "log.db")
	opts := relaxed()
	opts.Snapshots = snapshot.Policy{Every: 16}
	s, err := store.Open(path, opts)
	no(t, err)
	t.Cleanup(func() { no(t, s.Close()) })
	// Beside these sessions, the steps in which a file grows count for little.
	fill(t, s, 8, 1500)
	c, err := compaction.New(s, compaction.Config{Enabled: true, CompactionInterval: 12, OverlapSize: 1}, compaction.Options[store.Key]{Logger: quiet()})
	no(t, err)
	return &soak{t: t, path: path, store: s, compact: c}
}

// compacts appends to a session of its own, compacts, searches and follows it.
func (k *soak) compacts() error {
	key := store.Key{App: "compacted", User: "u", Session: "s"}
	if _, err := k.store.Create(ctx, key, nil); err != nil && !errors.Is(err, store.ErrExists) {
		return err
	}
	for range 8 {
		k.n++
		if _, err := k.store.AppendEvents(ctx, key, store.AppendOptions{}, event(fmt.Sprint(k.n), 200)); err != nil {
			return err
		}
	}
	if _, err := k.compact.Compact(ctx, key, compaction.Run{}); err != nil {
		return err
	}
	if _, err := k.store.Search(ctx, key, recall.Search{Query: "0000", Limit: 3}); err != nil {
		return err
	}
	v, err := k.store.View(ctx, key)
	if err != nil {
		return err
	}
	watched := uint64(0)
	for _, err := range k.store.Watch(ctx, key, 1) {
		if watched++; err != nil || watched == v.Seq() {
			break
		}
	}
	if k.n%200 == 0 {
		return k.store.Delete(ctx, key)
	}
	return nil
}

// round makes a load's operations, while the store is verified, backed up and vacuumed and a session
// is compacted, at least once each; and deletes the load's sessions.
func (k *soak) round(r *long.Round, steps int) error {
	local := &ops.Local{Store: k.store}
	l := &linear.Load{Callers: []ops.Caller{local}, Clients: 6, Apps: 2, Name: fmt.Sprint("soak ", r.N), Seed: r.Random.Uint64(), Calls: steps, Forks: true}
	dir := k.t.TempDir()
	var failed atomic.Pointer[error]
	var doing sync.WaitGroup
	ended := make(chan struct{})
	for what, do := range map[string]func() error{
		"verify":  func() error { return verify(ctx, k.store) },
		"backup":  func() error { return backedUp(k.store, dir) },
		"vacuum":  func() error { return k.store.Vacuum(ctx) },
		"compact": k.compacts,
	} {
		doing.Go(func() {
			for more := true; more && failed.Load() == nil; {
				if err := do(); err != nil {
					err = fmt.Errorf("%s: %w", what, err)
					failed.CompareAndSwap(nil, &err)
				}
				r.Count(what, 1)
				select {
				case <-ended:
					more = false
				default:
				}
			}
		})
	}
	l.Run()
	close(ended)
	doing.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	history := l.End(local)
	r.Count("steps", len(history))
	if violations := history.Judge(linear.Options{}); len(violations) > 0 {
		return errors.New(strings.Join(violations, "\n"))
	}
	for info, err := range k.store.List(ctx, store.ListOptions{}) {
		if err != nil {
			return err
		}
		if strings.HasPrefix(info.Key.App, l.Name) {
			no(k.t, k.store.Delete(ctx, info.Key))
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
		if goroutines = runtime.NumGoroutine(); goroutines <= most || time.Since(began) > 5*time.Minute {
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
