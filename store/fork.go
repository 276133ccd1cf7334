package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// ForkOptions are options of [Store.Fork]. The zero value means the whole log.
type ForkOptions struct {
	// At, if not nil, is the seq of the last record to copy; 0 gives an empty log.
	At *uint64
}

// Fork creates a session with the initial state of another session and its records, all or those up to ForkOptions.At.
// After that the two sessions are independent. All records, including skipped patches, keep their seqs, ids and times,
// so each session can revert patches from before the fork.
//
// A long log is copied in several commits, between which others write; the new session appears with the last commit,
// complete. If Fork fails, or the process ends, before that commit, there is no new session.
//
// A record that was erased is a blank in the new session too. If the erasure's receipt is after the last record to
// copy, the new session gets its own receipt. Fork first finishes an interrupted erase of the session; it restarts at
// most once for each erase of the session that begins meanwhile. The new session notes its origin, so that an erase of
// either finds the other.
//
// Shared scopes are not part of a session: Fork neither rewinds them nor copies them to another user or app.
//
// It fails with [ErrNotFound] if the session or the record does not exist, or the session is deleted meanwhile, and
// with [ErrExists] if newKey exists. After [ErrOutcomeUnknown], look for the new session.
func (s *Store) Fork(ctx context.Context, key, newKey Key, opts ForkOptions) (Session, error) {
	if err := newKey.Validate(); err != nil {
		return Session{}, err
	}
	if key == newKey {
		return Session{}, fromBackend(key, backend.ErrExists)
	}
	for {
		head, m, err := s.closedHead(ctx, key)
		if err != nil {
			return Session{}, err
		}
		fork, err := s.fork(ctx, key, head, m, newKey, opts.At)
		if !errors.Is(err, errOtherLog) { // records that were copied are lost, or erased
			return fork, err
		}
	}
}

// fork forks a session that was read with the given head.
func (s *Store) fork(ctx context.Context, key Key, head backend.Head, m meta, newKey Key, at *uint64) (Session, error) {
	last := head.Last
	if at != nil {
		if last = *at; last > head.Last {
			return Session{}, fmt.Errorf("session %s: record %d: %w: the log's last record is %d", key, last, ErrNotFound, head.Last)
		}
	}
	h := s.cache.acquire(newKey)
	defer s.cache.release(h)
	// The copied records are invisible until the last commit, so only that needs the session's lock.
	c, err := s.newSession(ctx, h, meta{s.opts.Now().UTC(), m.initial, erase.Descend(head.Creation, m.lineage, last)})
	if err != nil {
		return Session{}, err
	}
	defer c.Drop() // after the commit it does nothing
	if at == nil {
		last = newest
	}
	if err := s.copyLog(ctx, c, key, head, last); err != nil {
		return Session{}, err
	}
	// The shared scopes are read first: after the commit nothing must fail.
	session, err := s.withScopes(ctx, newKey)
	if err != nil {
		return Session{}, err
	}
	if err := h.Lock(ctx); err != nil {
		return Session{}, err
	}
	defer h.Unlock()
	c.While = &backend.Unmoved{Session: key.name(), Creation: head.Creation, Edition: head.Edition}
	if err = c.Commit(ctx); errors.Is(err, ErrConflict) {
		now, readErr := s.headOfCreation(ctx, key, head.Creation)
		if readErr != nil {
			return Session{}, readErr
		}
		if now.Edition != head.Edition {
			err = errOtherLog
		}
	}
	session.View = c.View
	return session, err
}

// copyLog gives a new session the records of another log, up to the given seq, or all if that is [newest]. It adds
// receipts for the erased content of these records.
func (s *Store) copyLog(ctx context.Context, c *write.Creation, from Key, head backend.Head, last uint64) error {
	var erased receipt.Marks
	view := c.View
	for page, err := range s.pages(ctx, from, head, 1, last) {
		if err != nil {
			return err
		}
		if view, err = s.foldRecords(ctx, from, head.Creation, view, page.records); err != nil {
			return err
		}
		for i, r := range page.records {
			c.Copy(r, page.raw[i].Data, view)
			erased.Add(r)
		}
		if view.Seq() == min(last, head.Last) {
			break
		}
		if err := c.Stage(); err != nil {
			return err
		}
	}
	return s.copyReceipts(ctx, c, from, head, erased.MissingReceipts())
}

// copyReceipts adds receipts with the given ids of what was erased of the records, if those of the other log are behind
// them: the same ones, as far as they are about these.
func (s *Store) copyReceipts(ctx context.Context, c *write.Creation, from Key, head backend.Head, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	seqs, err := s.backend.Lookup(ctx, from.name(), head.Creation, ids)
	if err != nil {
		return fromBackend(from, err)
	}
	slices.Sort(seqs)
	last := c.View.Seq()
	for _, seq := range slices.Compact(seqs) {
		if seq <= last { // there is none of the id, or something else
			continue
		}
		receipts, err := s.pick(ctx, from, head.Creation, []uint64{seq})
		if err != nil {
			return err
		}
		if receipts[0].Patch == nil {
			continue
		}
		if own, ok := receipts[0].Patch.ErasureUpTo(last); ok {
			c.Records = append(c.Records, patch.Record{Patch: own})
			if err := c.Append(len(c.Records) - 1); err != nil {
				return err
			}
		}
	}
	return nil
}
