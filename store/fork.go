package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// ForkOptions are options of [Store.Fork]. The zero value means the whole log.
type ForkOptions struct {
	// At, if not nil, is the seq of the last record that the new session has; 0 gives an empty log.
	At *uint64
}

// Fork creates a session with the initial state and the records of another one, or the first of them.
// From there on the two go their own ways: neither shows what is logged in the other, and
// deleting one leaves the other whole. Records keep their seqs, ids and times, patches
// that were skipped included, so that what patches hid can be taken back in either.
//
// A long log is copied in steps, and others write in between; the new session is there
// with the last step, as a whole. If Fork fails, or the process ends, before that, nothing
// is left of it.
//
// A record that was erased is a blank in the new session too. If its receipt is behind the last
// record, the new session has a receipt of its own there. If an erase of the session is not
// finished, Fork finishes what it has left there first; it begins again at most once for each erase of the session that
// begins meanwhile. The new session notes whose records it has, so that an erase of either finds the other.
//
// Scopes that sessions share are not part of a session: they are not taken back to what
// they were, and, for a user or an app of its own, not copied.
//
// It fails with [ErrNotFound] if there is no such session or record, or the session is
// deleted meanwhile, and with [ErrExists] if the new one is there. After
// [ErrOutcomeUnknown], looking for the new session tells.
func (s *Store) Fork(ctx context.Context, key, newKey Key, opts ForkOptions) (Session, error) {
	if err := newKey.Validate(); err != nil {
		return Session{}, err
	}
	if key == newKey {
		return Session{}, fromBackend(key, backend.ErrExists)
	}
	for {
		head, m, err := s.head(ctx, key)
		if err == nil && countsOf(head).open > 0 {
			if err := s.finishErasures(ctx, key, false); err != nil {
				return Session{}, err
			}
			head, m, err = s.head(ctx, key)
		}
		if err != nil {
			return Session{}, err
		}
		fork, err := s.fork(ctx, key, head, m, newKey, opts.At)
		if !errors.Is(err, errOtherLog) { // records that were copied are lost, or erased
			return fork, err
		}
	}
}

// fork makes a fork of a session that was found with the given head.
func (s *Store) fork(ctx context.Context, key Key, head backend.Head, m meta, newKey Key, at *uint64) (Session, error) {
	last := head.Last
	if at != nil {
		if last = *at; last > head.Last {
			return Session{}, fmt.Errorf("session %s: record %d: %w: the log's last record is %d", key, last, ErrNotFound, head.Last)
		}
	}
	h := s.cache.acquire(newKey)
	defer s.cache.release(h)
	// What is copied is nowhere to be seen before the last commit, which alone needs the
	// session's lock.
	c, err := s.newSession(ctx, h, meta{s.opts.Now().UTC(), m.initial, erase.Descend(head.Creation, m.lineage, last)})
	if err != nil {
		return Session{}, err
	}
	defer c.drop() // after the commit it does nothing
	if at == nil {
		last = newest
	}
	if err := c.copy(key, head, last); err != nil {
		return Session{}, err
	}
	if err := c.receipts(key, head); err != nil {
		return Session{}, err
	}
	// The shared scopes are read first: after the commit nothing must fail.
	session, err := s.withScopes(ctx, newKey)
	if err != nil {
		return Session{}, err
	}
	if err := h.lock(ctx); err != nil {
		return Session{}, err
	}
	defer h.unlock()
	c.while = &backend.Unmoved{Session: key.name(), Creation: head.Creation, Edition: head.Edition}
	if err = c.commit(); errors.Is(err, ErrConflict) {
		now, readErr := s.headOf(ctx, key, head.Creation)
		if readErr != nil {
			return Session{}, readErr
		}
		if now.Edition != head.Edition {
			err = errOtherLog
		}
	}
	session.View = c.view
	return session, err
}

// copy takes the records of another log, up to the one with the given seq, or all if that is
// [newest].
func (c *creating) copy(from Key, head backend.Head, last uint64) error {
	for page, err := range c.store.pages(c.ctx, from, head, 1, last) {
		if err != nil {
			return err
		}
		if c.view, err = c.store.foldRecords(c.ctx, from, head.Creation, c.view, page.records); err != nil {
			return err
		}
		for i, r := range page.records {
			c.put(r, page.raw[i].Data)
			c.erased.Record(r)
		}
		if c.view.Seq() == min(last, head.Last) {
			return nil
		}
		if err := c.stage(); err != nil {
			return err
		}
	}
	return nil
}

// receipts adds receipts of what was erased of the records, if those of the other log are behind
// them: the same ones, as far as they are about these.
func (c *creating) receipts(from Key, head backend.Head) error {
	lacks := c.erased.Lacks()
	if len(lacks) == 0 {
		return nil
	}
	seqs, err := c.store.backend.Lookup(c.ctx, from.name(), head.Creation, lacks)
	if err != nil {
		return fromBackend(from, err)
	}
	slices.Sort(seqs)
	last := c.view.Seq()
	for _, seq := range slices.Compact(seqs) {
		if seq <= last { // there is none of the id, or something else
			continue
		}
		r, err := c.store.record(c.ctx, from, head.Creation, seq)
		if err != nil {
			return err
		}
		if r.Patch == nil {
			continue
		}
		own, ok := r.Patch.ErasureUpTo(last)
		if !ok {
			continue
		}
		r = patch.Record{Seq: c.view.Seq() + 1, Patch: own}
		if c.view, err = c.view.Apply(r); err == nil {
			err = c.add(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
