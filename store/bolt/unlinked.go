package bolt

import (
	"bytes"
	"context"
	"errors"

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

// Delete implements [backend.Backend]. The session is gone with the first commit, which removes a large one's rows in
// part only; others follow.
func (b *Backend) Delete(ctx context.Context, name, creation string, seen *backend.Head) error {
	all := false
	err := b.update(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		if seen != nil && seen.Moved(headOf(tx, s)) {
			return backend.ErrMoved
		}
		paths := b.handle.paths(tx)
		if err := errors.Join(paths.check(bucketHeads, []byte(name)), paths.check(bucketSessions, []byte(name))); err != nil {
			return err
		}
		if err := errors.Join(tx.Bucket(bucketHeads).Delete([]byte(name)), tx.Bucket(bucketSessions).Delete([]byte(name))); err != nil {
			return err
		}
		if !b.removalsPaused.Load() {
			if all, err = b.removeRows(tx, s.number, newRoom()); err != nil || all {
				return err
			}
		}
		return unlink(tx, s.number)
	})
	if err == nil && !all {
		b.sweep(ctx)
	}
	return err
}

// unlink notes that no session goes by the number: it is that of a deleted session of which rows are left.
func unlink(tx *bbolt.Tx, number []byte) error {
	return tx.Bucket(bucketUnlinked).Put(number, seal(kindUnlinked, number, nil))
}

// removeRows removes rows under a number, as far as there is room, and reports whether
// none is left.
func (b *Backend) removeRows(tx *bbolt.Tx, number []byte, room *room) (done bool, err error) {
	paths := b.handle.paths(tx)
	for _, name := range rowBuckets {
		if err := paths.check(name, number); err != nil {
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

// sweep removes what stands under unlinked numbers, a piece a commit, so that other writers come in between. What is
// left for an error, a crash, or a copy under way takes up room until the next one.
func (b *Backend) sweep(ctx context.Context) {
	var numbers [][]byte
	look := func(tx *bbolt.Tx) error { numbers = sweepable(tx); return nil }
	for b.view(ctx, look) == nil && len(numbers) > 0 {
		if err := b.update(ctx, b.sweepSome); err != nil {
			return
		}
	}
}

// sweepable returns the unlinked numbers. One that damage made of another may be a session's.
func sweepable(tx *bbolt.Tx) (numbers [][]byte) {
	for k, v := range rows(tx.Bucket(bucketUnlinked), nil) {
		if _, ok := unseal(kindUnlinked, k, v); ok && len(k) == 8 {
			numbers = append(numbers, bytes.Clone(k))
		}
	}
	return numbers
}

var errCopying = errors.New("rows are kept for a copy")

// sweepSome removes rows under unlinked numbers, as many as a commit may. A number without rows is forgotten.
func (b *Backend) sweepSome(tx *bbolt.Tx) error {
	if b.removalsPaused.Load() {
		b.removalsPending.Store(true)
		return errCopying
	}
	room := newRoom()
	for _, number := range sweepable(tx) {
		if !room.take(len(number)) {
			return nil
		}
		if all, err := b.removeRows(tx, number, room); err != nil || !all {
			return err
		}
		if err := tx.Bucket(bucketUnlinked).Delete(number); err != nil {
			return err
		}
	}
	return nil
}
