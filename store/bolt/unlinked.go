package bolt

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// room is how much one commit may still remove. Others wait for as long as it takes.
type room struct{ rows, bytes int }

func newRoom() *room { return &room{rows: 2048, bytes: 8 << 20} }

// take uses up the room for one row, and reports whether there was some.
func (r *room) take(size int) bool {
	if r.rows <= 0 || r.bytes <= 0 {
		return false
	}
	r.rows--
	r.bytes -= size
	return true
}

// Delete implements [backend.Backend]. The session is gone with the first commit, which
// removes a large one's rows in part only; the sweeper removes the others.
func (b *Backend) Delete(ctx context.Context, name, creation string, seen *backend.Head) error {
	return b.update(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		if seen != nil && seen.Moved(b.headOf(tx, s)) {
			return backend.ErrMoved
		}
		ways := b.handle.ways(tx)
		if err := errors.Join(ways.check(bucketHeads, []byte(name)), ways.check(bucketSessions, []byte(name))); err != nil {
			return err
		}
		if err := tx.Bucket(bucketHeads).Delete([]byte(name)); err != nil {
			return err
		}
		if err := tx.Bucket(bucketSessions).Delete([]byte(name)); err != nil {
			return err
		}
		if b.keeping.Load() {
			return unlink(tx, s.number)
		}
		if done, err := b.removeRows(tx, s.number, newRoom()); err != nil || done {
			return err
		}
		return unlink(tx, s.number)
	})
}

// unlink notes that no session goes by the number: it is that of a session that was deleted while
// rows are left under it, or of one that is still being staged. Nobody sees what stands there.
func unlink(tx *bbolt.Tx, number []byte) error {
	return tx.Bucket(bucketUnlinked).Put(number, seal(kindUnlinked, number, nil))
}

// removeRows removes rows under a number, as far as there is room, and reports whether
// none is left.
func (b *Backend) removeRows(tx *bbolt.Tx, number []byte, room *room) (done bool, err error) {
	ways := b.handle.ways(tx)
	for _, name := range rowBuckets {
		if err := ways.check(name, number); err != nil {
			return false, err
		}
	}
	for _, name := range rowBuckets {
		bucket := tx.Bucket(name)
		// First the keys: a cursor loses its place when rows go, and finding it again
		// leads through all the pages that have become empty.
		var keys [][]byte
		more := false
		for k, v := range rows(bucket, number) {
			if more = !room.take(len(v)); more {
				break
			}
			keys = append(keys, bytes.Clone(k))
		}
		for _, k := range keys {
			if err := bucket.Delete(k); err != nil {
				return false, err
			}
		}
		if more {
			return false, nil
		}
	}
	return true, nil
}

// sweepable yields the unlinked numbers that are to be swept: those under which nothing is
// being staged. A number that damage made of another one may be a session's.
func (b *Backend) sweepable(tx *bbolt.Tx) iter.Seq[[]byte] {
	return func(yield func(number []byte) bool) {
		for k, v := range rows(tx.Bucket(bucketUnlinked), nil) {
			if _, ok := unseal(kindUnlinked, k, v); ok && len(k) == 8 && !b.staged.holds(k) && !yield(bytes.Clone(k)) {
				return
			}
		}
	}
}

// hasSweepable reports whether there is something to sweep. While rows are kept there is not.
func (b *Backend) hasSweepable(tx *bbolt.Tx) bool {
	for range b.sweepable(tx) {
		if !b.keeping.Load() {
			return true
		}
		b.kept.Store(true)
		break
	}
	return false
}

// sweepSome removes rows under unlinked numbers, as many as a commit may, and reports
// whether there were any. A number without rows is forgotten.
func (b *Backend) sweepSome() (some bool, err error) {
	err = b.update(context.Background(), func(tx *bbolt.Tx) error {
		room := newRoom()
		var done [][]byte
		if !b.hasSweepable(tx) {
			return errNothing
		}
		for number := range b.sweepable(tx) {
			if !room.take(len(number)) {
				break
			}
			some = true
			all, err := b.removeRows(tx, number, room)
			if err != nil {
				return err
			}
			if !all {
				break
			}
			done = append(done, number)
		}
		for _, number := range done {
			if err := tx.Bucket(bucketUnlinked).Delete(number); err != nil {
				return err
			}
		}
		return nil
	})
	if err == errNothing {
		err = nil
	}
	return some, err
}

// sweeper removes what stands under unlinked numbers, in the background and a piece a
// commit, so that other writers come in between. What a crash, an error or a program of
// before leaves is found by the next write: opening writes nothing.
type sweeper struct {
	mu      sync.Mutex
	due     bool // there may be something to remove
	running bool
	closed  bool
	sweeps  sync.WaitGroup
}

// sweep has the sweeper look for something to remove. It does not wait.
func (b *Backend) sweep() {
	w := &b.sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = true
	if w.running || w.closed {
		return
	}
	w.running = true
	w.sweeps.Go(func() {
		for w.next() {
			for some, err := b.sweepSome(); some && err == nil; some, err = b.sweepSome() {
			}
		}
	})
}

// next reports whether the sweeper is to look once more.
func (w *sweeper) next() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = w.due
	w.due = false
	return w.running
}

// close lets no more sweeps begin, and waits for the one under way.
func (w *sweeper) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.sweeps.Wait()
}
