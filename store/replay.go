package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
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

const newest = ^uint64(0)

// replay reads the session's view at a seq, or its newest if seq is newest: from the
// snapshot if there is one that will do, else from the first record.
func (s *Store) replay(ctx context.Context, key Key, seq uint64) (replayed, error) {
	for try := 0; ; try++ {
		if r, err := s.replayOnce(ctx, key, seq); !errors.Is(err, errOtherLog) || try == maxRechecks {
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
	empty := replayed{view: fold.New(head.Creation, m.initial).WithEdition(head.Edition), head: head}
	if seq == 0 {
		return empty, nil
	}
	r, unfit := s.fromSnapshot(ctx, key, empty, min(seq, head.Last))
	if unfit == nil {
		if err = s.foldUpTo(ctx, key, head, &r, seq); r.snapshot == 0 || !errors.Is(err, ErrCorrupt) {
			return r, err
		}
		unfit = err
	}
	if ctx.Err() != nil || errors.Is(unfit, ErrClosed) || errors.Is(unfit, ErrNotFound) { // deleted meanwhile
		return replayed{}, unfit
	}
	// A snapshot is a cache: whatever is wrong with it, the log has the answer.
	s.opts.Logger.Warn("patchlog: a snapshot is not usable; reading the log from its first record", "session", key.String(), "error", unfit)
	r = empty
	err = s.foldUpTo(ctx, key, head, &r, seq)
	return r, err
}

// fromSnapshot returns the view of the session's snapshot, or the empty one if there is
// none that stands at seq or before.
func (s *Store) fromSnapshot(ctx context.Context, key Key, empty replayed, seq uint64) (replayed, error) {
	creation := empty.view.Creation()
	kept, now, err := s.snapshotOf(ctx, key, creation)
	if err != nil || kept.Data == nil {
		return empty, fromBackend(key, err)
	}
	r := empty
	err = s.furnish(ctx, key, empty.view, func(v fold.View) (err error) {
		if r.view, err = snapshot.Decode(kept.Data, v, now.Last); r.view.Seq() > seq {
			r.view, err = empty.view, nil
		}
		return err
	})
	r.snapshot, r.chain = r.view.Seq(), kept.Chain
	return r, err
}

// snapshotOf returns the session's snapshot, or none, and a head of the log that no sound snapshot is above.
// Errors are the backend's.
func (s *Store) snapshotOf(ctx context.Context, key Key, creation string) (kept backend.Snapshot, now backend.Head, err error) {
	kept, err = s.backend.Snapshot(ctx, key.name(), creation)
	if err != nil || kept.Data == nil {
		return kept, now, err
	}
	// Looked at only now: while others write, log and snapshot may both have grown.
	if now, err = backend.HeadOf(ctx, s.backend, key.name()); err == nil && now.Creation != creation {
		err = backend.ErrNotFound
	}
	return kept, now, err
}

// foldUpTo folds the records that follow the view, up to the one with the given seq, or to the
// log's end if that is [newest]. If it fails, r.view has the records before the error.
//
// A snapshot of records that a server has lost that took over is found by the log's chain. It
// takes reading the log to its end.
func (s *Store) foldUpTo(ctx context.Context, key Key, head backend.Head, r *replayed, last uint64) error {
	pages := s.pages(ctx, key, head, r.view.Seq()+1, last)
	if r.snapshot > 0 && r.view.Seq() == r.snapshot {
		pages = s.pagesAfter(ctx, key, head, &r.chain, r.snapshot+1, newest)
	}
	for page, err := range pages {
		if err != nil {
			return err
		}
		for n := len(page.records); n > 0 && page.records[n-1].Seq > last; n-- {
			page.records = page.records[:n-1]
		}
		if r.view, err = s.foldRecords(ctx, key, head.Creation, r.view, page.records); err != nil {
			return err
		}
	}
	return nil
}

// foldRecords folds records that follow the view. What reverts among them bring back is
// read from the log of the session with the given key and creation.
func (s *Store) foldRecords(ctx context.Context, key Key, creation string, v fold.View, records []patch.Record) (fold.View, error) {
	for len(records) > 0 {
		next, err := v.Apply(records...)
		var need *fold.MissingRecordsError
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
		v = next.WithRecords(back)
	}
	return v, nil
}

// furnish calls do with a view. While do fails for want of records, furnish reads them and calls do again.
func (s *Store) furnish(ctx context.Context, key Key, v fold.View, do func(fold.View) error) error {
	hand := map[uint64]patch.Record{}
	for {
		err := do(v.WithRecords(slices.Collect(maps.Values(hand))))
		var need *fold.MissingRecordsError
		if !errors.As(err, &need) {
			return err
		}
		lacking := slices.DeleteFunc(need.Seqs, func(seq uint64) bool { return hand[seq].Seq == seq })
		more, err := s.pick(ctx, key, v.Creation(), lacking)
		if err != nil {
			return err
		}
		for _, r := range more {
			hand[r.Seq] = r
		}
	}
}

// newest returns the session's view, and the shared values with each of the prefixes, as
// they are at a moment after the call began: one look at the backend gives what the view in
// memory lacks. locked says that the caller holds the handle's lock.
func (s *Store) newest(ctx context.Context, h *handle, locked bool, prefixes ...string) (current, [][]backend.Value, error) {
	for {
		c, err := s.current(ctx, h, locked)
		if err != nil {
			return current{}, nil, err
		}
		news, err := s.backend.Fetch(ctx, backend.Query{Session: h.key.name(), Creation: c.view.Creation(), After: c.view.Seq(), Shared: prefixes})
		if err != nil {
			if errors.Is(err, backend.ErrNotFound) {
				h.dropSeen(c)
			}
			return current{}, nil, fromBackend(h.key, err)
		}
		next, err := s.advance(ctx, h, c, news)
		if err == nil {
			return next, news.Shared, nil
		}
		h.dropSeen(c)
		// If the log is damaged, the replay reports it.
		if !errors.Is(err, errOtherLog) && !errors.Is(err, ErrCorrupt) {
			return current{}, nil, err
		}
	}
}

// advance returns the view after what is new, and publishes it.
func (s *Store) advance(ctx context.Context, h *handle, c current, news backend.Fetched) (current, error) {
	head, v := news.Head, c.view
	switch {
	case head.Creation != v.Creation() || head.Edition != v.Edition() || head.Last < v.Seq() || head.Last == v.Seq() && head.Chain != c.chain:
		return c, errOtherLog // a server that took over may have lost acknowledged records
	case head.Token == c.token:
		return c, nil
	}
	p, err := decodePage(h.key, news.Records, backend.Range(v.Seq()+1, len(news.Records)))
	if err != nil {
		return c, err
	}
	r := replayed{chain: c.chain}
	for _, raw := range p.raw {
		r.chain = r.chain.Add(recordform.Checksum(raw.Data))
	}
	r.view, err = s.foldRecords(ctx, h.key, head.Creation, v, p.records)
	if err == nil { // the records that one look does not return, and the head's chain
		r.snapshot = r.view.Seq()
		err = s.foldUpTo(ctx, h.key, head, &r, newest)
	}
	if err != nil {
		return c, err
	}
	next := current{r.view, head.Token, head.Chain, countsOf(head)}
	h.publish(next)
	s.maybeSnapshot(h, r.view)
	return next, nil
}

// current returns the session's view from memory, which may be out of date, or reads it.
func (s *Store) current(ctx context.Context, h *handle, locked bool) (current, error) {
	c := h.newest.Load()
	if c == nil && !locked {
		if err := h.lock(ctx); err != nil {
			return current{}, err
		}
		defer h.unlock()
		c = h.newest.Load()
	}
	if c != nil {
		return *c, nil
	}
	r, err := s.replay(ctx, h.key, newest)
	if err != nil {
		return current{}, err
	}
	h.snapshot.Store(&snapshotMark{r.view.Creation(), r.snapshot})
	c = &current{r.view, r.head.Token, r.head.Chain, countsOf(r.head)}
	h.publish(*c)
	s.maybeSnapshot(h, c.view)
	return *c, nil
}

// chainOf is a log's chain with more records.
func chainOf(chain backend.Chain, records []backend.Record) backend.Chain {
	for _, r := range records {
		chain = chain.Add(r.Sum)
	}
	return chain
}
