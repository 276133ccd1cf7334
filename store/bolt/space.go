package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Space implements [backend.Vacuum].
func (b *Backend) Space(ctx context.Context) (s backend.Space, err error) {
	err = b.use(ctx, func(h *handle) error {
		return h.view(func(tx *bbolt.Tx) error {
			info, err := h.file.Stat()
			if err != nil {
				return err
			}
			metas, err := readMetas(h.file)
			if err != nil || metas.current() == nil {
				return errors.Join(fmt.Errorf("%w: both meta pages", backend.ErrDamaged), err)
			}
			// The list is of this transaction, or of a later one: its page is in use as long as this
			// one is open.
			free, err := readFreelist(h.file, metas.current())
			s.File = info.Size()
			s.Free = int64(free.len())*int64(metas.current().pageSize()) + max(0, s.File-tx.Size())
			return err
		})
	})
	for _, name := range buckets {
		if err == nil {
			s.Live, err = b.addLive(ctx, name, s.Live)
		}
	}
	return s, err
}

// addLive adds keys and values of a bucket, but for what is nobody's.
func (b *Backend) addLive(ctx context.Context, name []byte, n int64) (int64, error) {
	numbered := slices.ContainsFunc(rowBuckets, func(other []byte) bool { return bytes.Equal(other, name) })
	err := b.eachRow(ctx, name, func(tx *bbolt.Tx, k, v []byte) {
		if !numbered || len(k) < 8 || tx.Bucket(bucketUnlinked).Get(k[:8]) == nil {
			n += int64(len(k) + len(v))
		}
	})
	return n, err
}
