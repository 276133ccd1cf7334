package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// ForkOptions say what to fork. The zero value means the whole log.
type ForkOptions struct {
	// At, if not nil, is the seq of the last record that the new session has; 0 gives an
	// empty log.
	At *uint64
}

// Fork creates a session with the initial state and the first records of another one.
// From there on the two go their own ways: neither shows what is logged in the other, and
// deleting one leaves the other whole. Records keep their seqs, ids and times, patches
// that were skipped included, so that what patches hid can be taken back in either.
//
// A long log is copied in steps, and others write in between; the new session is there
// with the last step, as a whole. If Fork fails, or the process ends, before that, nothing
// is left of it.
//
// Scopes that sessions share are not part of a session: they are not taken back to what
// they were, and, for a user or an app of its own, not copied.
//
// It fails with [ErrNotFound] if there is no such session or record, or the session is
// deleted meanwhile, and with [ErrExists] if the new one is there. After
// [ErrOutcomeUnknown], looking for the new session tells.
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
	if err := s.absent(ctx, newKey); err != nil { // before reading a long log
		return Session{}, err
	}
	h := s.cache.acquire(newKey)
	defer s.cache.release(h)
	// What is copied is nowhere to be seen before the last commit, which alone needs the
	// session's lock.
	c, err := s.newSession(ctx, h, m.initial, s.opts.Now())
	if err != nil {
		return Session{}, err
	}
	defer s.backend.Unstage(c.creation) // after the commit it does nothing
	if err := c.copy(key, head, last); err != nil {
		return Session{}, err
	}
	// The shared scopes are read first: after the commit nothing must fail.
	out, err := s.session(ctx, newKey, c.view)
	if err != nil {
		return Session{}, err
	}
	if err := h.lock(ctx); err != nil {
		return Session{}, err
	}
	defer h.unlock()
	if err := s.absent(ctx, newKey); err != nil {
		return Session{}, err
	}
	return out, c.commit()
}

// absent fails with [ErrExists] if the session is there.
func (s *Store) absent(ctx context.Context, key Key) error {
	_, err := s.backend.Head(ctx, key.name())
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = backend.ErrExists
	}
	return fromBackend(key, err)
}

// copy takes the records of another log, up to the one with the given seq.
func (c *creating) copy(from Key, head backend.Head, last uint64) error {
	for page, err := range c.store.pages(c.ctx, from, head, 1, last) {
		if err != nil {
			return err
		}
		if c.view, err = c.store.foldRecords(c.ctx, from, head.Creation, c.view, page.records); err != nil {
			return err
		}
		for i, r := range page.records {
			c.put(r, page.data[i])
		}
		if c.view.Seq() == last {
			return nil
		}
		if err := c.stage(); err != nil {
			return err
		}
	}
	return nil
}
