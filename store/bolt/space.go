package bolt

import (
	"context"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Space implements [backend.Vacuumer].
func (b *Backend) Space(ctx context.Context) (s backend.Space, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		info, err := b.handle.file.Stat()
		if err != nil {
			return err
		}
		s.File = info.Size()
		db := tx.DB()
		pages := db.Stats()
		s.Free = int64(pages.FreePageN+pages.PendingPageN)*int64(db.Info().PageSize) + max(0, s.File-tx.Size())
		for _, name := range buckets {
			of := tx.Bucket(name).Stats() // counts leaves in use, with 16 bytes for each header and each element
			s.Live += int64(of.LeafInuse + of.InlineBucketInuse - pageHeaderBytes*(of.LeafPageN+of.InlineBucketN) - elementBytes*of.KeyN)
		}
		return nil
	})
	return s, err
}
