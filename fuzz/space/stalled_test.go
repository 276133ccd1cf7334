package space_test

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// stalledCommits is how many commits are made while readers stall.
func stalledCommits() int {
	switch {
	case long.Long():
		return 10_000 // of each round
	case testing.Short():
		return 300
	}
	return 1000
}

// grown says what is wrong with a file that stalled readers have made grow. The file grows in
// steps of 16 MiB.
func grown(stalled, plain int64) error {
	if step := int64(16 << 20); stalled > plain+plain/4+step {
		return fmt.Errorf("the file takes %d bytes with readers that stall, %d without", stalled, plain)
	}
	return nil
}

const stalledSessions = 20

// readable opens a store with sessions of which the first is longer than what is read at once.
func readable(t *testing.T) (s *store.Store, path string) {
	s, path = open(t)
	fill(t, s, stalledSessions, 20)
	var more []*patch.Event
	for n := 20; n < 1000; n++ {
		more = append(more, event(fmt.Sprint("f", n), 400))
	}
	_, err := s.AppendEvents(ctx, keyOf("filled", 0), store.AppendOptions{}, more...)
	no(t, err)
	return s, path
}

// commits makes so many, one after the other, in turn in all sessions.
func commits(t *testing.T, s *store.Store, n int) {
	for i := range n {
		_, err := s.AppendEvents(ctx, keyOf("filled", i%stalledSessions), store.AppendOptions{}, event(fmt.Sprint("w", i), 300))
		no(t, err)
	}
}

// Readers of every kind stall, in the middle of what they read, while commits are made. Then
// they go on, and have missed nothing of what there was when they began.
func TestStalledReaders(t *testing.T) {
	for r := range long.Rounds(t, 1) {
		plain, path := readable(t)
		commits(t, plain, stalledCommits())
		without := sizeOf(t, path)

		s, path := readable(t)
		readers := stall(t, s)
		commits(t, s, stalledCommits())
		with := sizeOf(t, path)
		if err := grown(with, without); err != nil {
			t.Error(err)
		}
		readers.goOn(t)
		if err := verify(ctx, s); err != nil {
			t.Error(err)
		}
		r.Count("commits", stalledCommits())
		r.Count("stalled readers", len(readers.ends))
		r.Count("MiB of file with them", int(with>>20))
		r.Count("MiB of file without", int(without>>20))
	}
}

// stalled is readers that wait.
type stalled struct {
	free chan struct{} // closed when they may go on
	wg   sync.WaitGroup
	ends []func() error
}

func (r *stalled) goOn(t *testing.T) {
	close(r.free)
	r.wg.Wait()
	for _, end := range r.ends {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// run runs a reader until it stalls. A reader calls wait where it stalls.
func (r *stalled) run(read func(wait func()) error) {
	at := make(chan struct{})
	var once sync.Once
	var err error
	r.wg.Go(func() {
		defer once.Do(func() { close(at) })
		err = read(func() {
			once.Do(func() { close(at) })
			<-r.free
		})
	})
	<-at
	r.ends = append(r.ends, func() error { return err })
}

// stall begins to read in all ways, and returns when each has got somewhere.
func stall(t *testing.T, s *store.Store) *stalled {
	r := &stalled{free: make(chan struct{})}
	log := func(records iter.Seq2[patch.Record, error], stop, want int, wait func()) error {
		n := 0
		for rec, err := range records {
			if err != nil {
				return err
			}
			if n++; n == stop {
				wait()
			}
			if n == want {
				break
			}
			_ = rec
		}
		if n != want {
			return fmt.Errorf("a reader got %d records, want %d", n, want)
		}
		return nil
	}
	key := keyOf("filled", 0)
	r.run(func(wait func()) error { return log(s.RawEvents(ctx, key, 1), 100, 1000, wait) }) // in the first page
	r.run(func(wait func()) error { return log(s.RawEvents(ctx, key, 1), 700, 1000, wait) }) // in a later one
	r.run(func(wait func()) error { return log(s.Watch(ctx, key, 1), 700, 1000, wait) })     // of what was there
	r.run(func(wait func()) error { return log(s.Watch(ctx, key, 1000), 1, 10, wait) })      // of what comes
	r.run(func(wait func()) error {
		n := 0
		for _, err := range s.List(ctx, store.ListOptions{}) {
			if err != nil {
				return err
			}
			if n++; n == 2 {
				wait()
			}
		}
		if n != stalledSessions {
			return fmt.Errorf("a list of %d sessions, want %d", n, stalledSessions)
		}
		return nil
	})
	write := func(wait func()) writerFunc {
		return func(p []byte) (int, error) {
			wait()
			return len(p), nil
		}
	}
	r.run(func(wait func()) error { return s.Backup(ctx, write(wait)) })
	r.run(func(wait func()) error { return s.Export(ctx, key, write(wait), store.ExportOptions{}) })
	r.run(func(wait func()) error {
		for p, err := range s.Verify(ctx, store.VerifyOptions{Progress: func(store.Key) { wait() }}) {
			return fmt.Errorf("%v, %w", p, err)
		}
		return nil
	})
	return r
}

// A reader that holds its transaction is reported: the same commits, by bbolt alone.
func TestControlHeldTransaction(t *testing.T) {
	run := func(hold bool) int64 {
		path := filepath.Join(t.TempDir(), "held.db")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30})
		no(t, err)
		commits := func(from int) {
			for i := from; i < from+600; i++ {
				no(t, db.Update(func(tx *bbolt.Tx) error {
					b, err := tx.CreateBucketIfNotExists([]byte("records"))
					for session := range 8 {
						err = errors.Join(err, b.Put(fmt.Appendf(nil, "%02d-%08d", session, i), make([]byte, 300)))
					}
					return err
				}))
			}
		}
		commits(0)
		if hold {
			tx, err := db.Begin(false)
			no(t, err)
			defer func() { no(t, errors.Join(tx.Rollback(), db.Close())) }()
		}
		commits(600)
		size := sizeOf(t, path)
		if !hold {
			no(t, db.Close())
		}
		return size
	}
	plain, held := run(false), run(true)
	if err := grown(held, plain); err == nil {
		t.Errorf("%d bytes with a transaction that is held, %d without, and it is not reported", held, plain)
	}
}
