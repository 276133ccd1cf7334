package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// Fork creates a session with the initial state and the first records of another one: those up to the seq at, or all
// if at is nil; 0 gives an empty log.
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
// finished, Fork finishes it first; if one begins meanwhile, Fork begins again.
//
// Scopes that sessions share are not part of a session: they are not taken back to what
// they were, and, for a user or an app of its own, not copied.
//
// It fails with [ErrNotFound] if there is no such session or record, or the session is
// deleted meanwhile, and with [ErrExists] if the new one is there. After
// [ErrOutcomeUnknown], looking for the new session tells.
func (s *Store) Fork(ctx context.Context, key, newKey Key, at *uint64) (Session, error) {
	if err := newKey.Validate(); err != nil {
		return Session{}, err
	}
	for {
		head, m, err := s.head(ctx, key)
		if err == nil && key == newKey {
			err = fromBackend(key, backend.ErrExists)
		}
		if err != nil {
			return Session{}, err
		}
		fork, err := s.fork(ctx, key, head, m, newKey, at)
		if errors.Is(err, errOtherLog) { // records that were copied are lost
			continue
		}
		if !errors.Is(err, errErasing) {
			return fork, err
		}
		// The erase looks for forks as long as there is a receipt that is not finished, so that is done
		// first, if the process that began it has not.
		if _, err := s.Erase(ctx, key, EraseSelection{}, EraseOptions{}); err != nil {
			return Session{}, err
		}
	}
}

// errErasing: what was copied is being erased, or has been since.
var errErasing = errors.New("an erase of the session is under way")

// fork makes a fork of a session that was found with the given head.
func (s *Store) fork(ctx context.Context, key Key, head backend.Head, m meta, newKey Key, at *uint64) (Session, error) {
	last := newest
	if at != nil {
		if last = *at; last > head.Last {
			return Session{}, fmt.Errorf("session %s: record %d: %w: the log's last record is %d", key, last, ErrNotFound, head.Last)
		}
	}
	h := s.cache.acquire(newKey)
	defer s.cache.release(h)
	// What is copied is nowhere to be seen before the last commit, which alone needs the
	// session's lock.
	c, err := s.newSession(ctx, h, meta{s.opts.Now().UTC(), m.initial})
	if err != nil {
		return Session{}, err
	}
	defer c.drop() // after the commit it does nothing
	if err := c.copy(key, head, last); err != nil {
		return Session{}, err
	}
	if err := c.noneOpen(key, head); err != nil {
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
	session.View = c.view
	return session, c.commitFork(key, head)
}

// commitFork commits a fork, unless an erase of its origin has begun since this had the given head. With the
// origin's lock, and in a shared backend by its token, no receipt comes in between: an erase that logs one later
// finds the fork.
func (c *creating) commitFork(from Key, head backend.Head) error {
	s, h := c.store, c.handle
	origin := s.cache.acquire(from)
	defer s.cache.release(origin)
	both := []*handle{h, origin} // in one order, so that no two forks wait for each other
	slices.SortFunc(both, func(a, b *handle) int { return cmp.Compare(a.key.name(), b.key.name()) })
	for _, h := range both {
		if err := h.lock(c.ctx); err != nil {
			return err
		}
		defer h.unlock()
	}
	var moved error // of a commit that was refused, since the origin has moved on or for another reason
	for {
		now, err := s.headOf(c.ctx, from, head.Creation)
		switch {
		case err != nil:
			return err
		case now.Edition != head.Edition:
			return errErasing
		case moved != nil && now.Token == c.while.Token:
			return moved
		}
		receipts, err := s.receiptsBetween(c.ctx, from, now, head.Last, now.Last)
		switch {
		case err != nil:
			return err
		case len(receipts) > 0:
			return errErasing
		}
		c.while = &backend.Unmoved{Session: from.name(), Creation: now.Creation, Last: now.Last, Token: now.Token}
		if moved = c.commit(); !errors.Is(moved, ErrConflict) {
			return moved
		}
	}
}

// noneOpen fails with [errErasing] if a receipt in the log of another session is not finished.
func (c *creating) noneOpen(from Key, head backend.Head) error {
	receipts, err := c.store.receiptsBetween(c.ctx, from, head, c.view.Seq(), head.Last)
	if err != nil && !errors.Is(err, ErrCorrupt) { // no erase reaches what is damaged behind these records
		return err
	}
	if slices.ContainsFunc(append(receipts, c.erased.Receipts...), func(r erase.Receipt) bool { return r.Of.ClosedAt == 0 }) {
		return errErasing
	}
	return nil
}

// receiptsBetween returns the receipts in a log that are behind one record and not behind another.
func (s *Store) receiptsBetween(ctx context.Context, key Key, head backend.Head, after, last uint64) (receipts []erase.Receipt, err error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	if c := h.newest.Load(); after == last || c != nil && c.view.Creation() == head.Creation && c.view.Seq() >= last && c.view.PatchSeq() <= after {
		return nil, nil
	}
	for r, err := range s.records(ctx, key, head, after+1, last) {
		if err != nil {
			return receipts, err
		}
		if erase.IsReceipt(r) {
			receipts = append(receipts, erase.ReceiptOf(r))
		}
	}
	return receipts, nil
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
