package bolt

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Space implements [backend.Vacuum].
func (b *Backend) Space(ctx context.Context) (s backend.Space, err error) {
	err = b.use(ctx, func(h *handle) error {
		return h.view(func(tx *txn) error {
			s, err = h.room(tx)
			return err
		})
	})
	if err != nil {
		return backend.Space{}, err
	}
	for _, name := range slices.Concat([][]byte{bucketUnlinked}, buckets) {
		n, err := b.liveBytes(ctx, name)
		if err != nil {
			return backend.Space{}, err
		}
		s.Live += n
	}
	return s, nil
}

// room returns the length of the file, and how much of it is free: pages on the list of free
// ones, and what lies behind the last page.
func (h *handle) room(tx *txn) (s backend.Space, err error) {
	info, err := h.file.Stat()
	if err != nil {
		return s, err
	}
	metas, err := readMetas(h.file)
	if err != nil {
		return s, err
	}
	current := metas.current()
	if current == nil {
		return s, fmt.Errorf("%w: both meta pages", backend.ErrDamaged)
	}
	page := int64(current.pageSize())
	// The list is of this transaction, or of a later one: its page is in use as long as this
	// one is open.
	list, err := readFreelist(h.file, current, uint64(info.Size()/page))
	if err != nil {
		return s, err
	}
	s.File = info.Size()
	s.Free = int64(list.len())*page + max(0, s.File-tx.Size())
	return s, nil
}

// liveBytes adds up keys and values of a bucket, but for what is nobody's.
func (b *Backend) liveBytes(ctx context.Context, name []byte) (n int64, err error) {
	numbered := slices.ContainsFunc(rowBuckets, func(other []byte) bool { return bytes.Equal(other, name) })
	err = b.eachRow(ctx, name, func(tx *txn, k, v []byte) {
		if unlinked := tx.Bucket(bucketUnlinked); numbered && unlinked != nil && len(k) >= 8 && unlinked.Get(k[:8]) != nil {
			return
		}
		n += int64(len(k) + len(v))
	})
	return n, err
}
