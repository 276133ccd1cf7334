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

// ForkOptions are options of [Store.Fork]. The zero value copies the whole log.
type ForkOptions struct {
	// At, if not nil, is the seq of the last record to copy. 0 gives an empty log.
	At *uint64
}

// Fork creates the session newKey as a copy of the session key. It copies the initial state and the records,
// optionally only up to [ForkOptions.At]. All records keep their seqs, ids and times, including patches that the
// view skips. Each session can therefore revert patches from before the fork. After the fork the two sessions are
// independent.
//
// A long log is copied in several commits, between which other writes run. The new session becomes visible with the
// last commit, complete. If Fork fails or the process ends before that commit, the new session does not exist.
//
// Erased records are blank in the new session too. If the receipt of an erase comes after the last copied record,
// the new session gets a receipt for the copied records. If an erase of the session is unfinished, Fork first
// finishes it. Each erase that starts during the call may restart the copy once. The new session stores its origin,
// so that an erase of one session finds the other.
//
// Shared scopes are not part of a session. Fork neither rewinds them nor copies them to another user or app.
//
// Fork fails with [ErrNotFound] if the session or the record does not exist, or if the session is deleted during
// the call. It fails with [ErrExists] if newKey exists. After [ErrOutcomeUnknown], check whether newKey exists.
func (s *Store) Fork(ctx context.Context, key, newKey Key, opts ForkOptions) (Session, error) {
	if err := newKey.Validate(); err != nil {
		return Session{}, err
	}
	if key == newKey {
		return Session{}, fromBackend(key, backend.ErrExists)
	}
	for {
		head, m, err := s.headAfterErase(ctx, key)
		if err != nil {
			return Session{}, err
		}
		fork, err := s.fork(ctx, key, head, m, newKey, opts.At)
		if !errors.Is(err, errLogChanged) { // copied records were erased, or a failover lost them
			return fork, err
		}
	}
}

// fork is one attempt of Fork. The arguments head and m are the head and the meta record of the source.
func (s *Store) fork(ctx context.Context, key Key, head backend.Head, m meta, newKey Key, at *uint64) (Session, error) {
	last := head.Last
	if at != nil {
		if last = *at; last > head.Last {
			return Session{}, fmt.Errorf("session %s: record %d: %w: the log's last record is %d", key, last, ErrNotFound, head.Last)
		}
	}
	h := s.cache.acquire(newKey)
	defer s.cache.release(h)
	// The copied records are invisible until the last commit, so only that commit needs the new session's lock.
	c, err := s.newSession(ctx, h, meta{s.opts.Now().UTC(), m.initial, erase.ExtendLineage(head.Creation, m.lineage, last)})
	if err != nil {
		return Session{}, err
	}
	defer c.Drop() // no-op after the commit
	if at == nil {
		last = endOfLog
	}
	if err := s.copyLog(ctx, c, key, head, last); err != nil {
		return Session{}, err
	}
	// Read the shared scopes before the commit, because no step after the commit may fail.
	session, err := s.withScopes(ctx, newKey)
	if err != nil {
		return Session{}, err
	}
	if err := h.Lock(ctx); err != nil {
		return Session{}, err
	}
	defer h.Unlock()
	c.ExpectedSource = &backend.SessionEdition{Session: key.name(), Creation: head.Creation, Edition: head.Edition}
	if err = c.Commit(ctx); errors.Is(err, ErrConflict) {
		now, readErr := s.headOfCreation(ctx, key, head.Creation)
		if readErr != nil {
			return Session{}, readErr
		}
		if now.Edition != head.Edition {
			err = errLogChanged
		}
	}
	session.View = c.View
	return session, err
}

// copyLog adds the records of another log to a new session, up to the record with seq last. If last is
// [endOfLog], it adds all records. It then adds the receipts that the copied records need.
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

// copyReceipts adds the receipts with the given ids. In the source's log, these receipts come after the copied
// records. In the new session, they cover only the copied records.
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
		if seq <= last { // no record has the id, or a copied record other than a receipt has it
			continue
		}
		receipts, err := s.readRecords(ctx, from, head.Creation, []uint64{seq})
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
