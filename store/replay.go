package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// replayed is a view that was read from the storage.
type replayed struct {
	view     fold.View
	snapshot uint64        // the seq that it was read from on; 0 is the first record
	chain    backend.Chain // of the log up to there
	head     backend.Head  // that the log was read by
}

// replay reads the session's view at a seq, or its newest if seq is newest: from the
// snapshot if there is one that will do, else from the first record.
func (s *Store) replay(ctx context.Context, key Key, seq uint64) (replayed, error) {
	for {
		if r, err := s.replayOnce(ctx, key, seq); !errors.Is(err, errOtherLog) {
			return r, err
		}
	}
}

func (s *Store) replayOnce(ctx context.Context, key Key, seq uint64) (replayed, error) {
	head, m, err := s.head(ctx, key)
	switch {
	case err != nil:
		return replayed{}, err
	case seq > head.Last && seq != newest:
		return replayed{}, fmt.Errorf("session %s: record %d: %w: the log's last record is %d", key, seq, ErrNotFound, head.Last)
	}
	empty := fold.New(head.Creation, m.initial).WithEdition(head.Edition)
	r, err := s.fromSnapshot(ctx, key, empty, min(seq, head.Last))
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrNotFound) { // deleted meanwhile
			return replayed{}, err
		}
		// A snapshot is a cache: whatever is wrong with it, the log has the answer.
		s.opts.Logger.Warn("patchlog: a snapshot is not usable; reading the log from its first record",
			"session", key.String(), "error", err)
		r = replayed{view: empty}
	}
	err = s.foldUpTo(ctx, key, &head, &r, seq)
	if r.snapshot > 0 && errors.Is(err, ErrCorrupt) {
		s.opts.Logger.Warn("patchlog: a snapshot is not of this log; reading the log from its first record",
			"session", key.String(), "error", err)
		r = replayed{view: empty}
		err = s.foldUpTo(ctx, key, &head, &r, seq)
	}
	r.head = head
	return r, err
}

const newest = ^uint64(0)

// fromSnapshot returns the view of the session's snapshot, or the empty one if there is
// none that stands at seq or before.
func (s *Store) fromSnapshot(ctx context.Context, key Key, empty fold.View, seq uint64) (replayed, error) {
	r := replayed{view: empty}
	kept, last, err := s.snapshotOf(ctx, key, empty.Creation())
	if err != nil || kept.Data == nil {
		return r, fromBackend(key, err)
	}
	restored, err := snapshot.Decode(kept.Data, empty, last)
	if restored.Seq() > seq {
		return r, nil
	}
	if need := (*fold.NeedError)(nil); errors.As(err, &need) {
		var records []patch.Record
		if records, err = s.pickAll(ctx, key, empty.Creation(), slices.Values(need.Seqs)); err != nil {
			return r, err
		}
		restored, err = snapshot.Decode(kept.Data, empty.With(records), last)
	}
	if err != nil {
		return r, err
	}
	return replayed{view: restored, snapshot: restored.Seq(), chain: kept.Chain}, nil
}

// snapshotOf returns the session's snapshot, or nil, and a last seq of the log that no
// sound snapshot is above. Errors are the backend's.
func (s *Store) snapshotOf(ctx context.Context, key Key, creation string) (kept backend.Snapshot, last uint64, err error) {
	kept, err = s.backend.Snapshot(ctx, key.name(), creation)
	if err != nil || kept.Data == nil {
		return backend.Snapshot{}, 0, err
	}
	// Looked at only now: while others write, log and snapshot may both have grown.
	head, err := backend.HeadOf(ctx, s.backend, key.name())
	if err == nil && head.Creation != creation {
		err = backend.ErrNotFound
	}
	return kept, head.Last, err
}

// foldUpTo folds the records that follow the view, up to the one with the given seq, or to the
// log's end if that is [newest]; head is set as by [Store.pages].
//
// A snapshot of records that a server has lost that took over is found by the log's chain. It
// takes reading the log to its end.
func (s *Store) foldUpTo(ctx context.Context, key Key, head *backend.Head, r *replayed, last uint64) error {
	var pages iter.Seq2[page, error]
	if r.snapshot > 0 && r.view.Seq() == r.snapshot {
		pages = s.pagesAfter(ctx, key, head, &r.chain, r.view.Seq()+1, newest)
	} else {
		pages = s.pages(ctx, key, head, r.view.Seq()+1, last)
	}
	var err error
	r.view, err = s.foldPages(ctx, key, head.Creation, r.view, pages, last)
	if err == nil && last != newest && r.view.Seq() < last {
		err = otherLog(key)
	}
	return err
}

// foldPages folds the records of pages that follow the view, up to the one with the given
// seq, and reads on to the pages' end. It returns as much of the view as there is in any case.
func (s *Store) foldPages(ctx context.Context, key Key, creation string, v fold.View, pages iter.Seq2[page, error], last uint64) (fold.View, error) {
	for page, err := range pages {
		if err != nil {
			return v, err
		}
		for n := len(page.records); n > 0 && page.records[n-1].Seq > last; n-- {
			page.records = page.records[:n-1]
		}
		if v, err = s.foldRecords(ctx, key, creation, v, page.records); err != nil {
			return v, err
		}
	}
	return v, nil
}

// foldRecords folds records that follow the view. What reverts among them bring back is
// read from the log of the session with the given key and creation.
func (s *Store) foldRecords(ctx context.Context, key Key, creation string, v fold.View, records []patch.Record) (fold.View, error) {
	for len(records) > 0 {
		next, err := v.Apply(records...)
		var need *fold.NeedError
		switch {
		case err == nil:
			return next, nil
		case !errors.As(err, &need):
			return v, &CorruptError{Key: key, Seq: v.Seq() + 1, Err: err}
		}
		back, err := s.pick(ctx, key, creation, need.Seqs)
		if err != nil {
			return v, err
		}
		records = records[next.Seq()-v.Seq():]
		v = next.With(back)
	}
	return v, nil
}
