package store

import (
	"context"
	"time"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Lease acquires the session's lease with the given name for ttl, and reports whether this store holds the lease.
// If this store already holds the lease, Lease extends it. Among the stores that share a storage, at most one holds
// a lease at a time. The session need not exist.
//
// A ttl of 0 releases the lease. With a negative ttl, Lease changes nothing, and held reports whether this store
// could acquire the lease.
//
// Use a lease to avoid duplicate work, such as two summaries of the same events. A lease is not a lock, because its
// holder may work longer than ttl.
func (s *Store) Lease(ctx context.Context, key Key, name string, ttl time.Duration) (held bool, err error) {
	if err := key.Validate(); err != nil {
		return false, err
	}
	held, err = s.lease(ctx, key.name()+name, ttl)
	return held, fromBackend(key, err)
}

// lease is Lease for a name in the backend. If the backend does not support leases, no other store can use the
// storage, and this store always gets the lease. lease returns the backend's errors.
func (s *Store) lease(ctx context.Context, name string, ttl time.Duration) (held bool, err error) {
	if l, ok := s.backend.(backend.Leaser); ok {
		return l.Lease(ctx, name, s.owner, ttl)
	}
	if s.closing.Err() != nil {
		return false, backend.ErrClosed
	}
	return ttl != 0, ctx.Err()
}
