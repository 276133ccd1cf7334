package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// So many rows are counted in one transaction.
const countedRows = 8192

// Space implements [backend.Vacuum].
func (b *Backend) Space(ctx context.Context) (s backend.Space, err error) {
	err = b.use(ctx, func(h *handle) error {
		return h.view(func(tx *bbolt.Tx) error {
			s, err = h.room(tx)
			return err
		})
	})
	if err != nil {
		return backend.Space{}, err
	}
	for _, name := range slices.Concat([][]byte{bucketMeta, bucketUnlinked}, oldBuckets, newBuckets) {
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
func (h *handle) room(tx *bbolt.Tx) (s backend.Space, err error) {
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
	free := int64(0)
	// The list is of this transaction, or of a later one: its page is in use as long as this
	// one is open.
	if list := current.freelist(); list != math.MaxUint64 {
		header := make([]byte, pageHeaderBytes+8)
		if _, err := h.file.ReadAt(header, int64(list)*page); err != nil {
			return s, err
		}
		if free = int64(binary.NativeEndian.Uint16(header[10:])); free == math.MaxUint16 { // it did not fit
			free = int64(binary.NativeEndian.Uint64(header[pageHeaderBytes:]))
		}
	}
	s.File = info.Size()
	s.Free = free*page + max(0, s.File-tx.Size())
	return s, nil
}

// liveBytes adds up keys and values of a bucket, but for what is nobody's.
func (b *Backend) liveBytes(ctx context.Context, name []byte) (n int64, err error) {
	numbered := slices.ContainsFunc(rowBuckets, func(other []byte) bool { return bytes.Equal(other, name) })
	var after []byte
	for more := true; more; {
		err := b.view(ctx, func(tx *bbolt.Tx) error {
			more = false
			bucket := tx.Bucket(name)
			if bucket == nil {
				return nil
			}
			unlinked := tx.Bucket(bucketUnlinked)
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
				if numbered && unlinked != nil && len(k) >= 8 && unlinked.Get(k[:8]) != nil {
					continue
				}
				n += int64(len(k) + len(v))
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}
