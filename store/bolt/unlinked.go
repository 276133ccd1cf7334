package bolt

import (
	"bytes"
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Other writers wait for a commit that removes rows. One commit therefore removes at most maxRemoved bytes. Each row
// counts as its length plus rowOverhead bytes.
const (
	maxRemoved  = 8 << 20
	rowOverhead = 4 << 10
)

// Delete implements [backend.Backend]. The first commit removes the session and as many rows as the limit allows.
// Later commits remove the remaining rows.
func (b *Backend) Delete(ctx context.Context, name, creation string, seen *backend.Head) error {
	left := false
	err := b.update(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		if seen != nil {
			now, err := headOf(tx, s)
			if err == nil && seen.Moved(now) {
				err = backend.ErrMoved
			}
			if err != nil {
				return err
			}
		}
		if err := b.handle.newPathChecker(tx).check([]byte(name), bucketHeads, bucketSessions); err != nil {
			return err
		}
		err = errors.Join(tx.Bucket(bucketHeads).Delete([]byte(name)), tx.Bucket(bucketSessions).Delete([]byte(name)), b.removeFamily(tx, s))
		if err == nil && !b.removalsPaused.Load() {
			room := maxRemoved
			if err = b.removeRows(tx, s.number, &room); room > 0 {
				return err
			}
			left = true
		}
		if err != nil {
			return err
		}
		// The number still has rows.
		return tx.Bucket(bucketUnlinked).Put(s.number, seal(kindUnlinked, s.number, nil))
	})
	if err == nil && left {
		b.sweep(ctx)
	}
	return err
}

// removeRows removes rows under a number until their total size reaches *room. It subtracts the size of the removed
// rows from *room. If *room is greater than 0 afterwards, all rows were removed.
func (b *Backend) removeRows(tx *bbolt.Tx, number []byte, room *int) error {
	if err := b.handle.newPathChecker(tx).check(number, rowBuckets...); err != nil {
		return err
	}
	for _, name := range rowBuckets {
		bucket := tx.Bucket(name)
		// The keys are collected first, because a cursor loses its position when rows are removed. Seeking the
		// position again would visit all pages that became empty.
		var keys [][]byte
		for k, v := range rows(bucket, number) {
			if *room <= 0 {
				break
			}
			*room -= len(v) + rowOverhead
			keys = append(keys, bytes.Clone(k))
		}
		for _, k := range keys {
			if err := bucket.Delete(k); err != nil {
				return err
			}
		}
	}
	return nil
}

var errNoChanges = errors.New("nothing to write")

// sweep removes the rows of deleted sessions in several commits, so that other writers can commit in between. Rows
// that remain after an error, a crash or a running copy use space until the next sweep.
func (b *Backend) sweep(ctx context.Context) {
	left := true
	checkLeft := func(tx *bbolt.Tx) error {
		first, _ := tx.Bucket(bucketUnlinked).Cursor().First()
		left = first != nil
		return nil
	}
	for b.view(ctx, checkLeft) == nil && left && b.update(ctx, b.sweepBatch) == nil {
	}
}

// sweepBatch removes as many rows of unlinked numbers as one commit may remove. It then removes the unlinked numbers
// that have no rows left. It skips numbers with a wrong checksum, because damage may have turned them into the
// number of an existing session.
func (b *Backend) sweepBatch(tx *bbolt.Tx) error {
	if b.removalsPaused.Load() {
		return errNoChanges
	}
	var numbers [][]byte
	for k, v := range rows(tx.Bucket(bucketUnlinked), nil) {
		if _, ok := unseal(kindUnlinked, k, v); ok && len(k) == 8 {
			numbers = append(numbers, bytes.Clone(k))
		}
	}
	if len(numbers) == 0 { // all remaining numbers have a wrong checksum
		return errNoChanges
	}
	room := maxRemoved
	for _, number := range numbers {
		room -= rowOverhead
		if err := b.removeRows(tx, number, &room); err != nil || room <= 0 {
			return err
		}
		if err := tx.Bucket(bucketUnlinked).Delete(number); err != nil {
			return err
		}
	}
	return nil
}
