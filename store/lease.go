package store

import (
	"context"
	"time"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Lease reports whether this store holds the session's lease of the given name from now on
// for as long as ttl: no other store that shares the storage does. Taking it again makes it
// hold longer, a ttl of 0 gives it up, and one below 0 only asks whether this store could
// have it. A lease keeps work from being done twice, such as a
// summary of the same events; it guards nothing, since its holder may take longer than ttl.
// The session need not be there.
func (s *Store) Lease(ctx context.Context, key Key, name string, ttl time.Duration) (held bool, err error) {
	if err := key.Validate(); err != nil {
		return false, err
	}
	held, err = s.lease(ctx, key.name()+name, ttl)
	return held, fromBackend(key, err)
}

// lease is Lease by the backend's leases. If it has none, no other store can use the storage. Errors are the backend's.
func (s *Store) lease(ctx context.Context, name string, ttl time.Duration) (held bool, err error) {
	if l, ok := s.backend.(backend.Leaser); ok {
		return l.Lease(ctx, name, s.owner, ttl)
	}
	if s.closing.Err() != nil {
		return false, backend.ErrClosed
	}
	return ttl != 0, ctx.Err()
}
