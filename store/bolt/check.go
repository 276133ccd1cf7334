package bolt

import (
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"
)

// Check reads the whole file and reports inconsistencies in pages, sessions, records, the id index and shared values.
// It does not decode records.
//
// Other calls can read and write meanwhile. Check reads in short transactions, because during a long transaction the
// file would grow with each commit. Each transaction continues where the previous one ended. The space of sessions
// that are deleted meanwhile is freed when Check ends. Only one Check, Copy or Vacuum runs at a time.
func (b *Backend) Check(ctx context.Context) error {
	resume, err := b.pauseRemovals(ctx)
	if err != nil {
		return err
	}
	defer resume()
	var found findings
	// The rows of a damaged bucket cannot be read in order.
	if err := b.checkPages(ctx, &found); err != nil || found.err() != nil {
		return errors.Join(b.metaDamage(), found.err(), err)
	}
	m, err := b.readDirectory(ctx, &found, rowBuckets...)
	if err == nil {
		r := sessionReader{backend: b, found: &found, progress: map[string]*readProgress{}}
		err = r.readNew(ctx, m)
	}
	return errors.Join(b.metaDamage(), found.err(), err)
}

// leavesPerTx is the number of leaves that are checked in one transaction.
const leavesPerTx = 512

// checkPages checks the pages of all buckets. The free list was checked when the file was opened.
func (b *Backend) checkPages(ctx context.Context, found *findings) error {
	for _, name := range buckets {
		for from, more := []byte(nil), true; more; more = from != nil {
			if err := b.view(ctx, func(tx *bbolt.Tx) error {
				from = b.handle.newPathChecker(tx).checkLeaves(name, from, found)
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// metaDamage returns an error if a meta page was damaged when the file was opened, and no commit has overwritten
// that page.
func (b *Backend) metaDamage() (err error) {
	_ = b.withHandle(context.Background(), func(h *handle) error {
		if h.lastTxid.Load() == h.openedTxid {
			err = h.metaDamage
		}
		return nil
	})
	return err
}
