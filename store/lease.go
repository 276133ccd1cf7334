package store

import (
	"context"
	"time"
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
	held, err = s.backend.Lease(ctx, key.name()+name, s.owner, ttl)
	return held, fromBackend(key, err)
}
