package store

import (
	"context"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Handles returns the number of sessions that are in use or cached.
func Handles(s *Store) int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return len(s.cache.handles)
}

// Watched returns the number of watched sessions.
func Watched(s *Store) int {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	return len(s.changes.channels)
}

// Uncompressed disables the compression of records until the test ends.
func Uncompressed(t testing.TB) {
	write.Compress = func(form []byte) []byte { return form }
	t.Cleanup(func() { write.Compress = recordform.Compress })
}

// Receipts returns the erase receipts of a session's log, in log order.
func (s *Store) Receipts(ctx context.Context, key Key) (receipts []patch.Record, err error) {
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return nil, err
		}
		if receipt.IsReceipt(r) {
			receipts = append(receipts, r)
		}
	}
	return receipts, nil
}
