package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// An erasing that is not finished keeps nobody from making a backup, in which it can be finished.
func TestBackupOfAHalfErasedSession(t *testing.T) {
	dir := t.TempDir()
	b := openBoltAt(t, filepath.Join(dir, "log.db"))
	faulty := &storetest.Faulty{Backend: b}
	s := newStore(t, faulty, store.Options{})
	createWith(t, s, eraseKey, said(t, "e1", "secret"))
	faulty.Plan(storetest.Plan{Write: 2, Failure: storetest.Refused})
	if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{All: true}, store.EraseOptions{ID: "r"}); !errors.Is(err, storetest.ErrInjected) {
		t.Fatalf("a step that fails: %v", err)
	}
	no(t, s.Close())

	open := func(name string) *store.Store {
		s := openStore(t, filepath.Join(dir, name), store.Options{})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	var copied bytes.Buffer
	no(t, open("log.db").Backup(t.Context(), &copied))
	no(t, os.WriteFile(filepath.Join(dir, "copy.db"), copied.Bytes(), 0o600))
	s = open("copy.db")
	must(t)(s.Erase(t.Context(), eraseKey, store.EraseSelection{}, store.EraseOptions{ID: "r"}))
	if got := has(t, s, eraseKey, "secret"); len(got) > 0 {
		t.Errorf("records %v of the copy have it", got)
	}
	verified(t, s)
}

// reading calls something before each read of a log.
type reading struct {
	backend.Backend
	mu     sync.Mutex
	before func()
}

func (r *reading) Read(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	r.mu.Lock()
	before := r.before
	r.before = nil
	r.mu.Unlock()
	if before != nil {
		before()
	}
	return r.Backend.Read(ctx, name, creation, seqs, maxBytes)
}

// What is erased while Verify looks is no damage, though Verify had looked up the log's end before
// the receipt was there.
func TestVerifyBesideErase(t *testing.T) {
	b := &reading{Backend: new(memory.Backend)}
	s := newStore(t, b, store.Options{})
	defer s.Close()
	createWith(t, s, eraseKey, said(t, "e1", "secret"))
	erased := false
	b.before = func() {
		erased = true
		if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{All: true}, store.EraseOptions{}); err != nil {
			t.Error(err)
		}
	}
	verified(t, s)
	if !erased {
		t.Error("nothing was erased meanwhile")
	}
	verified(t, s)
}

// A fork that is deleted while it is being erased has nothing left to erase. The writes are the
// receipts of both forks and of the session, and then two of each: a step, and the closing commit.
func TestEraseForkDeletedMeanwhile(t *testing.T) {
	for _, c := range []struct{ write, fork int }{{1, 0}, {2, 1}, {3, 0}, {3, 1}, {4, 0}, {5, 0}, {6, 1}, {7, 1}, {8, 0}} {
		erasable(t, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
			createWith(t, s, eraseKey, said(t, "e1", "secret"))
			forks := []store.Key{eraseKey, eraseKey}
			for i := range forks {
				forks[i].Session = fmt.Sprint("t", i)
				must(t)(s.Fork(t.Context(), eraseKey, forks[i], store.ForkOptions{}))
			}
			faulty.Plan(storetest.Plan{Write: c.write, Failure: storetest.Landed, During: func() {
				if err := s.Delete(t.Context(), forks[c.fork]); err != nil {
					t.Error(err)
				}
			}})
			if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{All: true}, store.EraseOptions{}); err != nil {
				t.Errorf("write %d, fork %d: %v", c.write, c.fork, err)
			}
			for _, key := range []store.Key{eraseKey, forks[1-c.fork]} {
				if got := has(t, s, key, "secret"); len(got) > 0 {
					t.Errorf("write %d, fork %d: records %v of %s have it", c.write, c.fork, got, key)
				}
			}
			verified(t, s)
		})
	}
}

// Two that erase parts of one session, while others write to it and read it, finish both, and what
// anybody is shown afterwards has neither.
func TestErasesBesideEachOther(t *testing.T) {
	erasable(t, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		var events []*patch.Event
		for i := range 400 {
			events = append(events, said(t, fmt.Sprint("e", i), fmt.Sprintf("secret of %d", i%2)))
		}
		createWith(t, s, eraseKey, events...)
		var erasing, writing sync.WaitGroup
		for i := range 2 {
			erasing.Go(func() {
				of := store.EraseSelection{Match: fmt.Sprintf("secret of %d", i)}
				if _, err := s.Erase(t.Context(), eraseKey, of, store.EraseOptions{ID: fmt.Sprint("r", i)}); err != nil {
					t.Error(err)
				}
			})
		}
		over := make(chan struct{})
		writing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				if _, err := s.AppendEvents(t.Context(), eraseKey, store.AppendOptions{}, said(t, fmt.Sprint("w", n), "more")); err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Get(t.Context(), eraseKey); err != nil {
					t.Error(err)
				}
			}
		})
		erasing.Wait()
		close(over)
		writing.Wait()
		if got := has(t, s, eraseKey, "secret"); len(got) > 0 {
			t.Errorf("records %v have it", got)
		}
		if receipts, err := s.Receipts(t.Context(), eraseKey); err != nil || len(receipts) != 2 {
			t.Errorf("receipts %v, %v", receipts, err)
		}
		verified(t, s)
	})
}
