package bolt

import (
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"
)

// Check reads the whole file and reports inconsistencies of pages, sessions, records, the index of ids, and shared
// values. nil means that it found none. It does not decode records.
//
// Other calls read and write meanwhile. Check reads in short transactions, each of which starts where the one before
// ended: during a long transaction, the file would grow with each commit. The space of sessions deleted meanwhile is
// freed when Check ends. Check, Copy and Vacuum wait for each other.
func (b *Backend) Check(ctx context.Context) error {
	resume, err := b.pauseRemovals(ctx)
	if err != nil {
		return err
	}
	defer resume()
	var found findings
	if err := b.checkPages(ctx, &found); err != nil || found.err() != nil { // rows of damaged pages cannot be read in order
		return errors.Join(b.doubt(), found.err(), err)
	}
	m, err := b.readDirectory(ctx, &found, rowBuckets...)
	if err == nil {
		r := reader{of: b, found: &found, read: map[string]*extent{}}
		err = r.bring(ctx, m)
	}
	return errors.Join(b.doubt(), found.err(), err)
}

// sliceLeaves is how many leaves are checked in one transaction.
const sliceLeaves = 512

// checkPages checks the pages of all buckets. The list of free pages was checked when the file was opened.
func (b *Backend) checkPages(ctx context.Context, found *findings) error {
	for _, name := range buckets {
		for from, more := []byte(nil), true; more; more = from != nil {
			if err := b.view(ctx, func(tx *bbolt.Tx) error {
				from = b.handle.paths(tx).checkSlice(name, from, found)
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// doubt returns an error if a meta page was damaged when the file was opened. The next commit ends the doubt.
func (b *Backend) doubt() (err error) {
	_ = b.use(context.Background(), func(h *handle) error {
		if h.last.Load() == h.opened {
			err = h.doubt
		}
		return nil
	})
	return err
}
