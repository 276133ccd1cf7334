package bolt

import (
	"bytes"
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
		_, err = r.bring(ctx, m)
	}
	return errors.Join(b.doubt(), found.err(), err)
}

// So many leaves are checked in one transaction, or some more. A test takes other steps.
var sliceLeaves = 512

// checkPages checks that the pages that lead to each row are in form and in order: the trees of all buckets, a slice
// of them in each transaction. The list of free pages was checked when the file was opened.
func (b *Backend) checkPages(ctx context.Context, found *findings) error {
	for _, name := range buckets {
		from, more := []byte(nil), true
		for more {
			if err := b.view(ctx, func(tx *bbolt.Tx) error {
				from, more = b.handle.paths(tx).checkSlice(name, from, found)
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSlice checks pages of a bucket that lead to keys from a given one on, and returns the first key that is left.
func (w *pathChecker) checkSlice(name, from []byte, found *findings) (next []byte, more bool) {
	room := sliceLeaves
	w.walk(name, func(p page, i int) bool {
		switch {
		case from != nil && i+1 < len(p.elements) && bytes.Compare(p.elements[i+1].key, from) <= 0:
			return false
		case room <= 0 && !more:
			next, more = bytes.Clone(p.elements[i].key), true
		}
		return !more
	}, func(page) { room-- }, func(err error) { found.report("bucket %q: %w", name, err) })
	return next, more
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
