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
	w := write{store: s, handle: h}
	if err := w.create(m.initial); err != nil {
		return Session{}, err
	}
	defer s.backend.Unstage(w.batch.Creation) // after the commit it does nothing
	// What patches hide is let go of, and read again from where it stands: in the log that
	// is copied, and in the copy once that is whole.
	log := &source{store: s, key: key, creation: head.Creation}
	if err := w.copy(ctx, log, last); err != nil {
		return Session{}, err
	}
	// The shared scopes are read first: after the commit nothing must fail.
	out, err := s.session(ctx, newKey, w.view)
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
	log.key, log.creation = newKey, w.view.Creation()
	return out, w.commit(ctx)
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

// copy puts the records of another log, up to the one with the given seq, into the
// write's batch, which creates a session.
func (w *write) copy(ctx context.Context, log *source, last uint64) error {
	for page, err := range w.store.pages(ctx, log.key, log.creation, 1, last) {
		if err != nil {
			return err
		}
		next, err := foldPage(log.key, w.view, page.records)
		if err != nil {
			return err
		}
		w.view = next.Release(log)
		for i, r := range page.records {
			w.put(r, page.data[i])
		}
		if w.view.Seq() == last {
			return nil
		}
		if err := w.stage(ctx); err != nil {
			return err
		}
	}
	return nil
}
