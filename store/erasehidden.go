package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// eraseHidden erases what was hidden before a time of a session, and of it alone, and keeps what stands for
// that. It returns how many events it erased, or would, and whether it did anything: it may finish
// what was begun.
func (s *Store) eraseHidden(ctx context.Context, key Key, before time.Time, reason string, dryRun bool) (events int, did bool, err error) {
	v, err := s.View(ctx, key)
	if err != nil || v.PatchSeq() == 0 {
		return 0, false, err
	}
	e, err := s.newErasing(EraseOptions{Author: "retention", Reason: reason, Summaries: KeepSummaries})
	if err != nil {
		return 0, false, err
	}
	e.hidden = before
	done, err := e.do(ctx, key, EraseSelection{}, dryRun)
	for _, one := range done.Sessions {
		events += len(one.Events)
	}
	return events, len(done.Sessions) > 0, err
}

// hiddenBefore chooses the events that patches of a time, or of before, have put out of sight for good so far.
func (e *erasing) hiddenBefore(ctx context.Context, key Key, v fold.View) (chooser, error) {
	since, err := v.Hidden()
	if err != nil {
		return nil, err
	}
	by := map[uint64]bool{} // the patches, and whether they are old
	for _, seq := range since {
		by[seq] = false
	}
	for seqs := range slices.Chunk(slices.Sorted(maps.Keys(by)), eraseRecords) {
		patches, err := e.store.pick(ctx, key, v.Creation(), seqs)
		if err != nil {
			return nil, err
		}
		for _, r := range patches {
			by[r.Seq] = !r.Patch.Timestamp().After(e.hidden)
		}
	}
	return func(r patch.Record) (bool, func(int, *patch.Event) bool) {
		return false, func(i int, _ *patch.Event) bool {
			seq, hidden := since[fold.Ref{Seq: r.Seq, Index: i}]
			return hidden && by[seq]
		}
	}, nil
}
