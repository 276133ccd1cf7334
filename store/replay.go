package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// replayed is a view that was read from the storage.
type replayed struct {
	view     fold.View
	snapshot uint64 // the seq that it was read from on; 0 is the first record
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
	from := &source{store: s, key: key, creation: empty.Creation()}
	if r.view, err = skeleton.Restore(ctx, from); err != nil {
		return r, err
	}
	r.snapshot = skeleton.Seq
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

// source is a session's log as its views read it again.
type source struct {
	store    *Store
	key      Key
	creation string
}

// Records implements [fold.Source].
func (s *source) Records(ctx context.Context, seqs []uint64) ([]patch.Record, error) {
	records := make([]patch.Record, 0, len(seqs))
	for len(seqs) > 0 {
		raw, err := s.store.backend.Pick(ctx, s.key.name(), s.creation, seqs[:min(len(seqs), pageRecords)], pageBytes)
		if err != nil {
			return nil, fromBackend(s.key, err)
		}
		if len(raw) == 0 {
			return nil, &CorruptError{Key: s.key, Seq: seqs[0], Err: fmt.Errorf("%w: it is missing", ErrCorrupt)}
		}
		for i, r := range raw {
			rec, err := decode(s.key, seqs[i], r)
			if err != nil {
				return nil, err
			}
			records = append(records, rec)
		}
		seqs = seqs[len(raw):]
	}
	return records, nil
}

// foldUpTo folds the records that follow the view, up to the one with the given seq.
func (s *Store) foldUpTo(ctx context.Context, key Key, r *replayed, last uint64) error {
	for page, err := range s.pages(ctx, key, r.view.Creation(), r.view.Seq()+1, last) {
		if err != nil {
			return err
		}
		next, err := foldPage(key, r.view, page.records)
		if err != nil {
			return err
		}
		r.view = next.Release(&source{store: s, key: key, creation: next.Creation()})
	}
	return nil
}

// foldPage folds records that were read from a session's log.
func foldPage(key Key, v fold.View, records []patch.Record) (fold.View, error) {
	next, err := fold.Fold(v, records)
	if err != nil && !errors.Is(err, fold.ErrSource) {
		err = &CorruptError{Key: key, Seq: v.Seq() + 1, Err: err}
	}
	return next, err
}
