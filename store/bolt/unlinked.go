package bolt

import (
	"bytes"
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// room is how much one commit may still remove. Other writers wait for the commit.
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

// Delete implements [backend.Backend]. The session is gone with the first commit, which removes as many rows as a
// commit may; later commits remove the rest.
func (b *Backend) Delete(ctx context.Context, name, creation string, seen *backend.Head) error {
	left := false
	err := b.update(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		if seen != nil && seen.Moved(headOf(tx, s)) {
			return backend.ErrMoved
		}
		if err := b.handle.paths(tx).check([]byte(name), bucketHeads, bucketSessions); err != nil {
			return err
		}
		err = errors.Join(tx.Bucket(bucketHeads).Delete([]byte(name)), tx.Bucket(bucketSessions).Delete([]byte(name)))
		if err == nil && !b.removalsPaused.Load() {
			var done bool
			if done, err = b.removeRows(tx, s.number, newRoom()); done {
				return err
			}
			left = true
		}
		if err != nil {
			return err
		}
		// Rows of the number are left.
		return tx.Bucket(bucketUnlinked).Put(s.number, seal(kindUnlinked, s.number, nil))
	})
	if err == nil && left {
		b.sweep(ctx)
	}
	return err
}

// removeRows removes rows under a number, as far as there is room, and reports whether
// none is left.
func (b *Backend) removeRows(tx *bbolt.Tx, number []byte, room *room) (done bool, err error) {
	if err := b.handle.paths(tx).check(number, rowBuckets...); err != nil {
		return false, err
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

// errNothing ends a transaction that has nothing to write.
var errNothing = errors.New("nothing to write")

// sweep removes the rows of unlinked numbers, some in each commit, so that other writers come in between. Rows that
// an error, a crash or a copy under way leaves take up room until the next sweep.
func (b *Backend) sweep(ctx context.Context) {
	left := true
	look := func(tx *bbolt.Tx) error {
		first, _ := tx.Bucket(bucketUnlinked).Cursor().First()
		left = first != nil
		return nil
	}
	for b.view(ctx, look) == nil && left && b.update(ctx, b.sweepSome) == nil {
	}
}

// sweepSome removes rows of unlinked numbers, as many as a commit may, and the numbers without rows. It skips numbers
// whose checksum is wrong: damage may have turned them into numbers of sessions.
func (b *Backend) sweepSome(tx *bbolt.Tx) error {
	if b.removalsPaused.Load() {
		return errNothing
	}
	var numbers [][]byte
	for k, v := range rows(tx.Bucket(bucketUnlinked), nil) {
		if _, ok := unseal(kindUnlinked, k, v); ok && len(k) == 8 {
			numbers = append(numbers, bytes.Clone(k))
		}
	}
	if len(numbers) == 0 { // those that are left are damaged
		return errNothing
	}
	room := newRoom()
	for _, number := range numbers {
		if !room.take(len(number)) {
			return nil
		}
		if done, err := b.removeRows(tx, number, room); err != nil || !done {
			return err
		}
		if err := tx.Bucket(bucketUnlinked).Delete(number); err != nil {
			return err
		}
	}
	return nil
}
