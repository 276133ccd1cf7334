package store

import (
	"context"
	"math"

	"github.com/patchlog-dev/patchlog/fold"
)

// History returns what people should see of a session in one of its views: the visible log with the events that each summary
// covers in its place. It is [fold.View.History], and reads the hidden events that this needs from the log. It fails with
// [ErrNotFound] if the session is gone.
func (s *Store) History(ctx context.Context, key Key, v fold.View) ([]fold.Entry, error) {
	return s.HistoryPage(ctx, key, v, "", math.MaxInt)
}

// HistoryPage returns the last entries of [Store.History] before the event with an id, or of all if the id is "", limit at
// most. It reads the hidden events of the page. The error matches [fold.ErrEventNotFound] if the history does not have the
// event, and otherwise is as that of History.
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
