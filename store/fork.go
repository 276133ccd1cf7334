package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// ForkOptions say what to fork. The zero value means the whole log.
type ForkOptions struct {
	// At, if not nil, is the seq of the last record that the new session has; 0 gives an
	// empty log.
	At *uint64
}

// Fork creates a session with the initial state and the first records of another one, in
// one durable commit. From there on the two go their own ways: neither shows what is
// logged in the other, and deleting one leaves the other whole. Records keep their seqs,
// ids and times, patches that were skipped included, so that what patches hid can be
// taken back in either.
//
// Scopes that sessions share are not part of a session: they are not taken back to what
// they were, and, for a user or an app of its own, not copied.
//
// It fails with [ErrNotFound] if there is no such session or record, and with
// [ErrExists] if the new one is there. After [ErrOutcomeUnknown], looking for the new
// session tells.
func (s *Store) Fork(ctx context.Context, key, newKey Key, opts ForkOptions) (Session, error) {
	if err := key.Validate(); err != nil {
		return Session{}, err
	}
	if err := newKey.Validate(); err != nil {
		return Session{}, err
	}
	head, m, err := s.head(ctx, key)
	if err != nil {
		return Session{}, err
	}
	last := head.Last
	if opts.At != nil {
		if last = *opts.At; last > head.Last {
			return Session{}, fmt.Errorf("session %s: record %d: %w: the log's last record is %d", key, last, ErrNotFound, head.Last)
		}
	}
	h := s.cache.acquire(newKey)
	defer s.cache.release(h)
	if err := h.lock(ctx); err != nil {
		return Session{}, err
	}
	defer h.unlock()
	if _, err := s.backend.Head(ctx, newKey.name()); err == nil { // before reading a long log
		return Session{}, fromBackend(newKey, backend.ErrExists)
	}
	w := write{store: s, handle: h}
	if err := w.create(m.initial, w.store.opts.Now()); err != nil {
		return Session{}, err
	}
	for page, err := range s.pages(ctx, key, head.Creation, 1, last) {
		if err != nil {
			return Session{}, err
		}
		for _, r := range page.records {
			w.records = append(w.records, r)
			if err := w.add(len(w.records) - 1); err != nil {
				return Session{}, err
			}
		}
	}
	w.batch.Shared = nil
	// The shared scopes are read first: after the commit nothing must fail.
	out, err := s.session(ctx, newKey, w.view)
	if err != nil {
		return Session{}, err
	}
	return out, w.commit(ctx)
}
