package store

import (
	"cmp"
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
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// replayed is a view that was read from the storage.
type replayed struct {
	view     fold.View
	snapshot uint64        // seq of the snapshot at which the read started; 0 if there was none
	chain    backend.Chain // chain of the log up to snapshot
	head     backend.Head  // head of the log at the read

	invocations []string // see [write.State]
}

// addInvocations adds the invocations of records to r.invocations.
func (r *replayed) addInvocations(records []patch.Record) {
	for _, rec := range records {
		if rec.Event != nil && rec.Event.InvocationID() != "" {
			r.invocations = write.WithInvocation(r.invocations, rec.Event.InvocationID())
		}
	}
}

const endOfLog = ^uint64(0)

// replay reads the session's view at seq, or the newest view if seq is [endOfLog]. It starts from a usable snapshot,
// or otherwise from the first record. It also returns the shared values that the argument shared selects, as of the
// moment when the end of the log was read.
func (s *Store) replay(ctx context.Context, key Key, seq uint64, shared scopesQuery) (replayed, backend.Fetched, error) {
	for try := 0; ; try++ {
		if r, fetched, err := s.replayOnce(ctx, key, seq, shared); !errors.Is(err, errLogChanged) || try == maxRechecks {
			return r, fetched, err
		}
	}
}

// replayOnce is one attempt of replay. If the log is within the limits of a cold read, it makes one call of the
// backend.
func (s *Store) replayOnce(ctx context.Context, key Key, seq uint64, shared scopesQuery) (replayed, backend.Fetched, error) {
	if err := key.Validate(); err != nil {
		return replayed{}, backend.Fetched{}, err
	}
	fetched, err := s.backend.Fetch(ctx, shared.query(backend.Query{Session: key.name(), UpTo: seq}))
	if err != nil {
		return replayed{}, fetched, fromBackend(key, err)
	}
	head := fetched.Head
	m, err := metaOf(key, head)
	if err == nil && seq > head.Last && seq != endOfLog {
		err = fmt.Errorf("session %s: record %d: %w: the log's last record is %d", key, seq, ErrNotFound, head.Last)
	}
	if err != nil {
		return replayed{}, fetched, err
	}
	empty := replayed{view: fold.New(head.Creation, m.initial).WithEdition(head.Edition), head: head}
	if seq == 0 {
		return empty, fetched, nil
	}
	r, unfit := s.fromSnapshot(ctx, key, empty, fetched)
	if unfit == nil {
		if err = s.foldUpTo(ctx, key, head, &r, seq, fetched.Records); r.snapshot == 0 || !errors.Is(err, ErrCorrupt) {
			return r, fetched, err
		}
		unfit = err
	}
	if ctx.Err() != nil || errors.Is(unfit, ErrClosed) || errors.Is(unfit, ErrNotFound) { // ErrNotFound means that the session was deleted during the read
		return replayed{}, fetched, unfit
	}
	// A snapshot is only a cache. If it is unusable, read the whole log.
	s.opts.Logger.Warn("patchlog: a snapshot is not usable; reading the log from its first record", "session", key.String(), "error", unfit)
	r = empty
	err = s.foldUpTo(ctx, key, head, &r, seq, nil)
	return r, fetched, err
}

// fromSnapshot returns the view of the snapshot that a cold read fetched, or the empty view if there is no
// snapshot.
func (s *Store) fromSnapshot(ctx context.Context, key Key, empty replayed, fetched backend.Fetched) (replayed, error) {
	snap := fetched.Snapshot
	if snap.Err != nil || snap.Data == nil {
		return empty, fromBackend(key, snap.Err)
	}
	n, _ := slices.BinarySearchFunc(fetched.Records, snap.Seq+1, func(r backend.Record, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	supplied := make([]patch.Record, n)
	errs := make([]error, n)
	write.ForEach(n, func(i int) { supplied[i], errs[i] = decode(key, fetched.Records[i].Seq, fetched.Records[i]) })
	if err := errors.Join(errs...); err != nil {
		return empty, err
	}
	r := empty
	r.addInvocations(supplied)
	err := s.withRecords(ctx, key, empty.view, supplied, func(v fold.View) (err error) {
		r.view, err = snapshot.Decode(snap.Data, v, fetched.Last)
		return err
	})
	r.snapshot, r.chain = r.view.Seq(), snap.Chain
	return r, err
}

// foldUpTo folds the records that follow r.view, up to the record with seq last. If last is [endOfLog], it folds all
// of these records. The argument prefetched contains records that the caller has already read. If foldUpTo fails, r.view
// includes the records before the error.
//
// A failover may lose records that a snapshot includes. Only the chain at the end of the log shows this loss, so
// after a snapshot foldUpTo reads the log to its end.
func (s *Store) foldUpTo(ctx context.Context, key Key, head backend.Head, r *replayed, last uint64, prefetched []backend.Record) error {
	before, end := (*backend.Chain)(nil), last
	switch at := r.view.Seq(); {
	case at == 0:
		before = new(backend.Chain)
	case at == r.snapshot:
		before, end = &r.chain, endOfLog
	}
	for page, err := range s.pagesAfter(ctx, key, head, before, prefetched, r.view.Seq()+1, end) {
		if err != nil {
			return err
		}
		for n := len(page.records); n > 0 && page.records[n-1].Seq > last; n-- {
			page.records = page.records[:n-1]
		}
		if r.view, err = s.foldRecords(ctx, key, head.Creation, r.view, page.records); err != nil {
			return err
		}
		r.addInvocations(page.records)
	}
	return nil
}

// foldRecords folds records that follow the view. If a revert among them restores earlier records, foldRecords
// reads these from the log of the session.
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
		back, err := s.readRecords(ctx, key, creation, need.Seqs)
		if err != nil {
			return v, err
		}
		records = records[next.Seq()-v.Seq():]
		v = next.WithRecords(back)
	}
	return v, nil
}

// withRecords calls do with a view that has the supplied records. While do fails because the view lacks records,
// withRecords reads these records and calls do again.
func (s *Store) withRecords(ctx context.Context, key Key, v fold.View, supplied []patch.Record, do func(fold.View) error) error {
	available := map[uint64]patch.Record{}
	for _, r := range supplied {
		available[r.Seq] = r
	}
	for {
		err := do(v.WithRecords(slices.Collect(maps.Values(available))))
		var need *fold.MissingRecordsError
		if !errors.As(err, &need) {
			return err
		}
		lacking := slices.DeleteFunc(need.Seqs, func(seq uint64) bool { return available[seq].Seq == seq })
		more, err := s.readRecords(ctx, key, v.Creation(), lacking)
		if err != nil {
			return err
		}
		for _, r := range more {
			available[r.Seq] = r
		}
	}
}

// currentState returns the session's state, and the shared values that the argument shared selects, as of one
// moment after the call began. One Fetch reads the records that the view in memory lacks. If locked is true, the
// caller has locked the handle.
func (s *Store) currentState(ctx context.Context, h *handle, locked bool, shared scopesQuery) (write.State, backend.Fetched, error) {
	for {
		c, fetched, err := s.cachedOrReplayed(ctx, h, locked, shared)
		if err != nil || fetched.Creation != "" {
			return c, fetched, err
		}
		fetched, err = s.backend.Fetch(ctx, shared.query(backend.Query{Session: h.key.name(), Creation: c.View.Creation(), After: c.View.Seq()}))
		if err != nil {
			if errors.Is(err, backend.ErrNotFound) {
				h.dropUnchanged(c)
			}
			return write.State{}, fetched, fromBackend(h.key, err)
		}
		next, err := s.advance(ctx, h, c, fetched)
		if err == nil {
			return next, fetched, nil
		}
		h.dropUnchanged(c)
		// If the log is damaged, the replay reports it.
		if !errors.Is(err, errLogChanged) && !errors.Is(err, ErrCorrupt) {
			return write.State{}, fetched, err
		}
	}
}

// advance adds the new records to the view, and publishes the result.
func (s *Store) advance(ctx context.Context, h *handle, c write.State, fetched backend.Fetched) (write.State, error) {
	head, v := fetched.Head, c.View
	switch {
	case head.Creation != v.Creation() || head.Edition != v.Edition() || head.Last < v.Seq() || head.Last == v.Seq() && head.Chain != c.Chain:
		return c, errLogChanged // records were erased, or a failover may have lost acknowledged records
	case head.Token == c.Token:
		return c, nil
	}
	p, err := decodePage(h.key, fetched.Records, backend.Range(v.Seq()+1, len(fetched.Records)))
	if err != nil {
		return c, err
	}
	r := replayed{chain: c.Chain, invocations: c.Invocations}
	r.addInvocations(p.records)
	for _, raw := range p.raw {
		r.chain = r.chain.Add(recordform.Checksum(raw.Data))
	}
	r.view, err = s.foldRecords(ctx, h.key, head.Creation, v, p.records)
	if err == nil { // read the records beyond one Fetch, and check the head's chain
		r.snapshot = r.view.Seq()
		err = s.foldUpTo(ctx, h.key, head, &r, endOfLog, nil)
	}
	if err != nil {
		return c, err
	}
	next := write.State{View: r.view, Token: head.Token, Chain: head.Chain, Counts: write.CountsOf(head), Invocations: r.invocations}
	h.Publish(next)
	return next, nil
}

// cachedOrReplayed returns the session's state from memory, which may be out of date. If memory has no state, cachedOrReplayed reads
// the state from the storage, with the shared values that the argument shared selects. It then also returns the
// result of the Fetch.
func (s *Store) cachedOrReplayed(ctx context.Context, h *handle, locked bool, shared scopesQuery) (write.State, backend.Fetched, error) {
	c := h.cached.Load()
	if c == nil && !locked {
		if err := h.Lock(ctx); err != nil {
			return write.State{}, backend.Fetched{}, err
		}
		defer h.Unlock()
		c = h.cached.Load()
	}
	if c != nil {
		return *c, backend.Fetched{}, nil
	}
	r, fetched, err := s.replay(ctx, h.key, endOfLog, shared)
	if err != nil {
		return write.State{}, backend.Fetched{}, err
	}
	h.snapshot.Store(&snapshotMark{r.view.Creation(), r.snapshot})
	c = &write.State{View: r.view, Token: r.head.Token, Chain: r.head.Chain, Counts: write.CountsOf(r.head), Invocations: r.invocations}
	h.Publish(*c)
	return *c, fetched, nil
}
