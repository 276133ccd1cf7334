package bolt

import (
	"context"
	"errors"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Space implements [backend.Vacuum].
func (b *Backend) Space(ctx context.Context) (s backend.Space, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		file := b.handle.file
		info, err := file.Stat()
		if err != nil {
			return err
		}
		metas, err := readMetas(file)
		if err != nil || metas.current() == nil {
			return errors.Join(fmt.Errorf("%w: both meta pages", backend.ErrDamaged), err)
		}
		// The list is of this transaction, or of a later one: its page is in use as long as this
		// one is open.
		free, err := readFreelist(file, metas.current())
		if err != nil {
			return err
		}
		s.File = info.Size()
		s.Free = int64(free.len())*int64(metas.current().pageSize()) + max(0, s.File-tx.Size())
		for _, name := range buckets {
			of := tx.Bucket(name).Stats() // of leaves in use, whose headers and elements have 16 bytes each
			s.Live += int64(of.LeafInuse + of.InlineBucketInuse - pageHeaderBytes*(of.LeafPageN+of.InlineBucketN) - elementBytes*of.KeyN)
		}
		return nil
	})
	return s, err
}
