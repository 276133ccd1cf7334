package store

import (
	"context"
	"time"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Lease takes the session's lease of the given name for ttl, and reports whether this store holds it. Only one of the
// stores that share a storage holds a lease at a time. A holder that calls Lease again extends the lease. A ttl of 0
// releases it. A negative ttl takes nothing and reports whether this store could take the lease. A lease prevents
// duplicate work, such as two summaries of the same events. It is no lock, since its holder may work longer than ttl.
// The session need not exist.
func (s *Store) Lease(ctx context.Context, key Key, name string, ttl time.Duration) (held bool, err error) {
	if err := key.Validate(); err != nil {
		return false, err
	}
	held, err = s.lease(ctx, key.name()+name, ttl)
	return held, fromBackend(key, err)
}

// lease is Lease on the backend. If that has no leases, no other store can use the storage. Errors are the backend's.
func (s *Store) lease(ctx context.Context, name string, ttl time.Duration) (held bool, err error) {
	if l, ok := s.backend.(backend.Leaser); ok {
		return l.Lease(ctx, name, s.owner, ttl)
	}
	if s.closing.Err() != nil {
		return false, backend.ErrClosed
	}
	return ttl != 0, ctx.Err()
}
