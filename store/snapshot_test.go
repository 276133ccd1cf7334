package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

var often = store.Options{Snapshots: snapshot.Policy{Every: 1}, CacheBytes: -1}

// snapshots is a backend whose snapshots a test can see and change, and whose reads it
// can count.
type snapshots struct {
	backend.Backend
	read atomic.Int64 // records

	mu     sync.Mutex
	change func(data []byte) ([]byte, error)
}

func (s *snapshots) set(change func(data []byte) ([]byte, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change = change
}

func (s *snapshots) Snapshot(ctx context.Context, session, creation string) (backend.Snapshot, error) {
	kept, err := s.Backend.Snapshot(ctx, session, creation)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.change != nil {
		kept.Data, err = s.change(kept.Data)
	}
	return kept, err
}

func (s *snapshots) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	records, err := s.Backend.Read(ctx, session, creation, seqs, maxBytes)
	s.read.Add(int64(len(records)))
	return records, err
}

// watch opens the store anew on a backend whose snapshots can be changed.
func (e *env) watch() *snapshots {
	e.Helper()
	var s *snapshots
	e.reopenOn(func(engine backend.Backend) backend.Backend {
		s = &snapshots{Backend: engine}
		return s
	})
	return s
}

func (e *env) snapshotOf() []byte {
	e.Helper()
	v := e.view()
	kept, err := e.backend.Snapshot(ctx, e.nameOf(store.Info{Key: key, Creation: v.Creation()}), v.Creation())
	e.no(err)
	return kept.Data
}

// A store with snapshots that are read all the time, and one without, show the same.
func TestSnapshotsChangeNothing(t *testing.T) {
	var want []string
	grow := func(e *env, each func()) {
		e.create(map[string]any{"k0": "initial", "tenant": "t1"})
		for n := 5; n <= 60; n += 5 {
			e.fill(n)
			each()
		}
		// What cannot be applied stays listed.
		e.importText("f", e.export()+`{"id":"skipped","timestamp":"2025-01-01T00:00:00Z","patchType":"splice","start":999,"count":1}`+"\n")
		for n := 70; n <= 90; n += 5 {
			e.fill(n)
			each()
		}
	}
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		want = nil
		grow(e, func() { want = append(want, withoutCreation(e.viewText(e.view()))) })
	})
	onEachWith(t, often, func(e *env) {
		i := 0
		grow(e, func() {
			e.reopen() // waits for the snapshot
			e.same(fmt.Sprint("view ", i), withoutCreation(e.viewText(e.view())), want[i])
			i++
		})
		if len(e.snapshotOf()) == 0 {
			e.Error("there is no snapshot; the test tests nothing")
		}
		// Also of a time before the snapshot, or after it.
		records := e.records(key)
		v, err := e.store.ViewAt(ctx, key, 0)
		e.no(err)
		for _, r := range records {
			if v, err = v.Apply(r); err != nil {
				e.Fatal(err)
			}
			at, err := e.store.ViewAt(ctx, key, r.Seq)
			e.no(err)
			e.same(fmt.Sprint("view at ", r.Seq), e.viewText(at), e.viewText(v))
		}
	})
}

// Whatever is wrong with a snapshot, the answer is the same.
func TestUnusableSnapshots(t *testing.T) {
	onEachWith(t, often, func(e *env) {
		e.create(map[string]any{"k0": "initial"})
		e.fill(12)
		e.reopen()
		early := e.snapshotOf()
		e.fill(24)
		w := e.watch()
		whole := e.snapshotOf()
		if bytes.Equal(early, whole) || len(whole) == 0 {
			e.Fatal("there is no new snapshot")
		}
		want := e.viewText(e.view())
		other, err := snapshot.Encode(e.otherView())
		e.no(err)
		try := func(name string, data []byte, failure error) {
			e.Helper()
			w.set(func([]byte) ([]byte, error) { return data, failure })
			e.same(name, e.viewText(e.view()), want)
			// Writing goes on too.
			_, err := e.store.Preview(ctx, key, asOfNow, patch.NewSplice(0, 1))
			e.no(err)
		}
		for i := range whole {
			data := bytes.Clone(whole)
			data[i] ^= 1 << (i % 8)
			try(fmt.Sprint("byte ", i), data, nil)
		}
		for n := range len(whole) {
			try(fmt.Sprint("cut to ", n), whole[:n], nil)
		}
		try("longer", append(bytes.Clone(whole), 0), nil)
		try("missing", nil, nil)
		try("stale", early, nil)
		try("of another session", other, nil)
		try("garbage", bytes.Repeat([]byte{0xc1}, 1000), nil)
		try("unreadable", nil, fmt.Errorf("%w: page 9", backend.ErrDamaged))
		try("failing", nil, storetest.ErrInjected)
		try("whole", whole, nil)
	})
}

func (e *env) otherView() fold.View {
	e.Helper()
	_, err := e.store.Create(ctx, elsewhere, nil)
	e.no(err)
	c, err := e.store.AppendEvents(ctx, elsewhere, store.AppendOptions{}, says("o", 3)...)
	e.no(err)
	return c.View
}

// A cold read costs what is visible, not what was ever logged.
func TestSnapshotSparesHiddenRecords(t *testing.T) {
	onEachWith(t, often, func(e *env) {
		e.create(map[string]any{"tenant": "t1"})
		for i := range 10 {
			e.append(says(fmt.Sprint("a", i, "-"), 100)...)
		}
		e.apply(patch.NewSummarise(0, 990, summary("s")))
		e.append(say("last"))
		w := e.watch()
		v := e.view()
		if v.Len() != 12 || v.Seq() != 1002 {
			e.Fatalf("%d visible events at record %d", v.Len(), v.Seq())
		}
		if n := w.read.Load(); n > 30 {
			e.Errorf("a cold read of 12 events read %d records", n)
		}
		// A hidden record that cannot be read does not hinder the view, but is not hidden
		// from who reads it.
		e.reopenOn(func(engine backend.Backend) backend.Backend {
			return &damaged{Backend: engine, seq: 500, change: func(r *backend.Record) { r.Data[len(r.Data)-1] ^= 1 }}
		})
		e.same("view", e.viewText(e.view()), e.viewText(v))
		var err error
		for _, err = range e.store.RawEvents(ctx, key, 1) {
		}
		e.is(err, store.ErrCorrupt, "500")
	})
}

// Snapshots that cannot be written change nothing either.
func TestSnapshotsThatCannotBeWritten(t *testing.T) {
	onEachWith(t, often, func(e *env) {
		e.reopenOn(func(engine backend.Backend) backend.Backend { return &unwritable{engine} })
		e.create(nil)
		e.fill(20)
		if data := e.snapshotOf(); data != nil {
			e.Error("there is a snapshot")
		}
	})
}

type unwritable struct{ backend.Backend }

func (u *unwritable) PutSnapshot(context.Context, string, string, backend.Snapshot) error {
	return storetest.ErrInjected
}

// Closing waits for snapshots, and does not mind writers that go on.
func TestCloseWhileWritingSnapshots(t *testing.T) {
	onEachWith(t, often, func(e *env) {
		e.create(nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{}`))
					if errors.Is(err, store.ErrClosed) {
						return
					}
					if err != nil {
						e.Error(err)
						return
					}
					if e.path == "" && e.view().Seq() > 50 { // memory outlives its store here
						return
					}
				}
			})
		}
		for e.path != "" && e.view().Seq() < 20 {
		}
		e.no(e.store.Close())
		wg.Wait()
		e.reopen()
	})
}
