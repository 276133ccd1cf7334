package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// replayed is a view that was read from the storage.
type replayed struct {
	view     fold.View
	snapshot uint64 // the seq that it was read from on; 0 is the first record
	size     int64  // of the records that were read
}

// replay reads the session's view at a seq, or its newest if seq is newest: from the
// snapshot if there is one that will do, else from the first record.
func (s *Store) replay(ctx context.Context, key Key, seq uint64) (replayed, error) {
	head, m, err := s.head(ctx, key)
	switch {
	case err != nil:
		return replayed{}, err
	case seq == newest:
		seq = head.Last
	case seq > head.Last:
		return replayed{}, fmt.Errorf("session %s: record %d: %w: the log's last record is %d", key, seq, ErrNotFound, head.Last)
	}
	empty := fold.New(head.Creation, m.initial)
	r, err := s.fromSnapshot(ctx, key, empty, seq)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrNotFound) { // deleted meanwhile
			return replayed{}, err
		}
		// A snapshot is a cache: whatever is wrong with it, the log has the answer.
		s.opts.Logger.Warn("patchlog: a snapshot is not usable; reading the log from its first record",
			"session", key.String(), "error", err)
		r = replayed{view: empty}
	}
	return r, s.foldUpTo(ctx, key, &r, seq)
}

const newest = ^uint64(0)

// fromSnapshot returns the view of the session's snapshot, or the empty one if there is
// none that stands at seq or before.
func (s *Store) fromSnapshot(ctx context.Context, key Key, empty fold.View, seq uint64) (replayed, error) {
	r := replayed{view: empty}
	data, last, err := s.snapshotOf(ctx, key, empty.Creation())
	if err != nil || data == nil {
		return r, fromBackend(key, err)
	}
	skeleton, err := snapshot.Decode(data, empty.Creation(), last)
	if err != nil || skeleton.Seq > seq {
		return r, err
	}
	skeleton.Initial = empty.Skeleton().Initial
	records, err := s.recordsOf(ctx, key, skeleton, &r.size)
	if err != nil {
		return r, err
	}
	view, err := skeleton.Restore(
		func(n fold.NodeRef) (*patch.Event, error) { return eventOf(records[n.Seq], n) },
		func() ([]patch.Skip, error) { return s.skippedUpTo(context.Background(), key, empty, skeleton.Seq) },
	)
	if err != nil {
		return r, err
	}
	r.view, r.snapshot = view, skeleton.Seq
	return r, nil
}

// snapshotOf returns the session's snapshot, or nil, and a last seq of the log that no
// sound snapshot is above. Errors are the backend's.
func (s *Store) snapshotOf(ctx context.Context, key Key, creation string) (data []byte, last uint64, err error) {
	data, err = s.backend.Snapshot(ctx, key.name(), creation)
	if err != nil || data == nil {
		return nil, 0, err
	}
	// Looked at only now: while others write, log and snapshot may both have grown.
	head, err := s.backend.Head(ctx, key.name())
	if err == nil && head.Creation != creation {
		err = backend.ErrNotFound
	}
	return data, head.Last, err
}

// recordsOf reads the records that a skeleton refers to, and no others.
func (s *Store) recordsOf(ctx context.Context, key Key, skeleton fold.Skeleton, size *int64) (map[uint64]patch.Record, error) {
	var seqs []uint64
	for _, n := range skeleton.Nodes {
		if n.Seq != 0 {
			seqs = append(seqs, n.Seq)
		}
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	records := make(map[uint64]patch.Record, len(seqs))
	for len(seqs) > 0 {
		raw, err := s.backend.Pick(ctx, key.name(), skeleton.Creation, seqs[:min(len(seqs), pageRecords)], pageBytes)
		if err != nil {
			return nil, fromBackend(key, err)
		}
		if len(raw) == 0 {
			return nil, &CorruptError{Key: key, Seq: seqs[0], Err: fmt.Errorf("%w: it is missing", ErrCorrupt)}
		}
		for i, r := range raw {
			*size += int64(len(r.Data)) + recordOverhead
			if records[seqs[i]], err = decode(key, seqs[i], r); err != nil {
				return nil, err
			}
		}
		seqs = seqs[len(raw):]
	}
	return records, nil
}

// eventOf returns the event of a record that a node refers to.
func eventOf(r patch.Record, n fold.NodeRef) (*patch.Event, error) {
	switch {
	case r.Event != nil && n.Index == 0:
		return r.Event, nil
	case r.Patch != nil:
		if events := r.Patch.NewEvents(); n.Index < len(events) {
			return events[n.Index], nil
		}
	}
	return nil, fmt.Errorf("%w: record %d has no event %d", ErrCorrupt, n.Seq, n.Index)
}

// skippedUpTo returns the patches that the fold of the first records skips.
func (s *Store) skippedUpTo(ctx context.Context, key Key, empty fold.View, seq uint64) ([]patch.Skip, error) {
	r := replayed{view: empty}
	if err := s.foldUpTo(ctx, key, &r, seq); err != nil {
		return nil, err
	}
	return r.view.Skipped()
}

// foldUpTo folds the records that follow the view, up to the one with the given seq.
func (s *Store) foldUpTo(ctx context.Context, key Key, r *replayed, last uint64) error {
	for page, err := range s.pages(ctx, key, r.view.Creation(), r.view.Seq()+1, last) {
		if err != nil {
			return err
		}
		r.size += page.size
		if r.view, err = fold.Fold(r.view, page.records); err != nil {
			return &CorruptError{Key: key, Seq: r.view.Seq() + 1, Err: err}
		}
	}
	return nil
}
