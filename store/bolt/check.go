package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Check reads the whole file and reports what does not fit together: pages, sessions,
// records, the index of ids and shared values. nil means that nothing was found. What records
// say is not looked at.
//
// Others read and write meanwhile. The file is read in short transactions, each of which
// begins where the one before ended: one that is open for long makes the file grow with each
// commit. What is deleted meanwhile takes up its room until the end. A Check waits for a
// Copy and a Vacuum under way, and they for it. Pages that are lost, neither in use nor free,
// are noticed if nobody writes meanwhile.
func (b *Backend) Check(ctx context.Context) error {
	letGo, err := b.keepRows(ctx)
	if err != nil {
		return err
	}
	defer letGo()
	var found findings
	if err = b.checkPages(ctx, &found); err == nil && !found.pages { // else rows cannot be read in order
		err = b.checkRows(ctx, &found)
	}
	return errors.Join(found.err(), err)
}

// findings are what a check has found wrong.
type findings struct {
	errs  []error
	more  int
	pages bool // of the tree are damaged
}

// So many findings are enough to know that a file is damaged.
const maxFindings = 20

func (f *findings) add(err error) {
	switch {
	case err == nil:
	case len(f.errs) == maxFindings:
		f.more++
	default:
		f.errs = append(f.errs, err)
	}
}

func (f *findings) report(format string, args ...any) { f.add(fmt.Errorf(format, args...)) }

func (f *findings) err() error {
	if f.more > 0 {
		return errors.Join(append(f.errs, fmt.Errorf("and %d more", f.more))...)
	}
	return errors.Join(f.errs...)
}

// So many rows are looked at in one transaction.
const countedRows = 8192

// eachRow calls f with the rows of a bucket, in their order, in one transaction after the
// other. A bucket that is not there has none.
func (b *Backend) eachRow(ctx context.Context, name []byte, f func(tx *txn, k, v []byte)) error {
	var after []byte
	for more := true; more; {
		if err := b.view(ctx, func(tx *txn) error {
			more = false
			bucket := tx.Bucket(name)
			if bucket == nil {
				return nil
			}
			c := bucket.Cursor()
			k, v := c.Seek(after)
			if after != nil && bytes.Equal(k, after) {
				k, v = c.Next()
			}
			for i := 0; k != nil; k, v = c.Next() {
				if i++; i > countedRows {
					more = true
					return nil
				}
				after = append(after[:0], k...)
				f(tx, k, v)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func pairs(bucket *bucket) func(yield func(k, v []byte) bool) {
	return func(yield func(k, v []byte) bool) {
		c := bucket.Cursor()
		for k, v := c.First(); k != nil && yield(bytes.Clone(k), v); k, v = c.Next() {
		}
	}
}
