package bolt

import (
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"
)

// Check reads the whole file and reports what does not fit together: pages, sessions,
// records, the index of ids and shared values. nil means that nothing was found. What records
// say is not looked at.
//
// Others read and write meanwhile. The file is read in short transactions, each of which
// begins where the one before ended: one that is open for long makes the file grow with each
// commit. What is deleted meanwhile takes up its room until the end. A Check waits for a
// Copy and a Vacuum under way, and they for it.
func (b *Backend) Check(ctx context.Context) error {
	resume, err := b.pauseRemovals(ctx)
	if err != nil {
		return err
	}
	defer resume()
	var found findings
	if err := b.checkPages(ctx, &found); err != nil || found.err() != nil { // else rows cannot be read in order
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

// doubt returns an error if a meta page was damaged when the file was opened, until a commit writes it anew.
func (b *Backend) doubt() (err error) {
	_ = b.use(context.Background(), func(h *handle) error {
		if h.last.Load() == h.opened {
			err = h.doubt
		}
		return nil
	})
	return err
}
