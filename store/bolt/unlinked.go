package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// bucketUnlinked holds numbers that no session goes by: of a session that was deleted
// while rows are left under its number, and of one that is still being staged. Nobody
// sees what stands under them. Files from before have no such bucket, and get it when it
// is needed.
var bucketUnlinked = []byte("unlinked") // number → checksum

// rowBuckets have rows whose keys begin with a session's number.
var rowBuckets = [][]byte{bucketRecords, bucketIDs, bucketSnapshots}

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
	return b.update(ctx, func(tx *txn) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		if seen != nil && seen.Moved(b.headOf(tx, s)) {
			return backend.ErrMoved
		}
		if err := checkRemoval(tx, []byte(name), bucketHeads, bucketSessions); err != nil {
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

// unlink notes that no session goes by the number.
func unlink(tx *txn, number []byte) error {
	unlinked, err := tx.CreateBucket(bucketUnlinked)
	if err != nil {
		return err
	}
	return unlinked.Put(number, unlinkedSum(number))
}

// unlinkedSum is the checksum of a row of unlinked numbers: a number that damage made of
// another one may be a session's.
func unlinkedSum(number []byte) []byte {
	sum := crc32.Update(crc32.Checksum(bucketUnlinked, castagnoli), castagnoli, number)
	return binary.BigEndian.AppendUint32(nil, sum)
}

func wholeUnlinked(k, v []byte) bool { return len(k) == 8 && bytes.Equal(v, unlinkedSum(k)) }

// removeRows removes rows under a number, as far as there is room, and reports whether
// none is left.
func (b *Backend) removeRows(tx *txn, number []byte, room *room) (done bool, err error) {
	if err := checkRemoval(tx, number, rowBuckets...); err != nil {
		return false, err
	}
	for _, name := range rowBuckets {
		bucket := tx.Bucket(name)
		// First the keys: a cursor loses its place when rows go, and finding it again
		// leads through all the pages that have become empty.
		var keys [][]byte
		c := bucket.Cursor()
		k, v := c.Seek(number)
		for ; bytes.HasPrefix(k, number) && room.take(len(v)); k, v = c.Next() {
			keys = append(keys, bytes.Clone(k))
		}
		more := bytes.HasPrefix(k, number)
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

// checkRemoval looks over the pages that removing what begins with prefix will write anew.
func checkRemoval(tx *txn, prefix []byte, buckets ...[]byte) error {
	paths := pathsOf(tx)
	for _, name := range buckets {
		if err := paths.sound(name, prefix); err != nil {
			return err
		}
	}
	return nil
}

// swept returns the unlinked numbers that are to be swept: those under which nothing is
// being staged. While rows are kept there are none.
func (b *Backend) swept(tx *txn) func(yield func(number []byte) bool) {
	return func(yield func(number []byte) bool) {
		unlinked := tx.Bucket(bucketUnlinked)
		if unlinked == nil {
			return
		}
		if b.keeping.Load() {
			b.kept.Store(true)
			return
		}
		for k, v := range pairs(unlinked) {
			if wholeUnlinked(k, v) && !b.staged.holds(k) && !yield(k) {
				return
			}
		}
	}
}

// sweepSome removes rows under unlinked numbers, as many as a commit may, and reports
// whether there were any. A number without rows is forgotten.
func (b *Backend) sweepSome() (some bool, err error) {
	err = b.update(context.Background(), func(tx *txn) error {
		room := newRoom()
		var done [][]byte
		for number := range b.swept(tx) {
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
		if !some {
			return errNothing
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
