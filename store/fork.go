package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
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
	scopes, err := s.scopes(ctx, newKey)
	if err != nil {
		return Session{}, err
	}
	d, err := s.create(ctx, h, m.initial, nil, forking{s, key, head.Creation, last})
	if err != nil {
		return Session{}, err
	}
	return Session{Key: newKey, View: d.view, shared: scopes}, nil
}

// forking is the plan to copy the first records of another session.
type forking struct {
	store    *Store
	key      Key
	creation string
	last     uint64
}

func (p forking) offers() []patch.Record { return nil }

func (p forking) draft(d *draft) error {
	for page, err := range p.store.pages(d.ctx, p.key, p.creation, 1, p.last) {
		if err != nil {
			return err
		}
		for _, r := range page.records {
			d.missing = append(d.missing, len(d.records))
			d.records = append(d.records, r)
		}
	}
	err := d.addMissing()
	d.shared = nil // they are not part of a session
	return err
}
