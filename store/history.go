package store

import (
	"context"
	"math"

	"github.com/patchlog-dev/patchlog/fold"
)

// History returns what people should see of a session: the visible log of the view, with each summary replaced by the
// events that it covers. It is [fold.View.History], with the hidden events read from the log. It fails with
// [ErrNotFound] if the session is gone.
func (s *Store) History(ctx context.Context, key Key, v fold.View) ([]fold.Entry, error) {
	return s.HistoryPage(ctx, key, v, "", math.MaxInt)
}

// HistoryPage returns a page of [Store.History]: at most limit entries, the last before the event with the id before,
// or the last of all if before is "". It reads only the hidden events of the page. The error matches
// [fold.ErrEventNotFound] if the history does not have the event. Other errors are as for History.
func (s *Store) HistoryPage(ctx context.Context, key Key, v fold.View, before string, limit int) (entries []fold.Entry, err error) {
	var seq uint64
	if before != "" {
		seqs, err := s.backend.Lookup(ctx, key.name(), v.Creation(), []string{before})
		if err != nil {
			return nil, fromBackend(key, err)
		}
		seq = seqs[0]
	}
	err = s.withRecords(ctx, key, v, nil, func(v fold.View) (err error) {
		entries, err = v.HistoryPage(before, seq, limit)
		return err
	})
	return entries, err
}
