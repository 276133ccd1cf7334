package store

import (
	"context"
	"math"

	"github.com/patchlog-dev/patchlog/fold"
)

// History returns the session as people should see it. It is the visible log of the view, in which the events that
// a summary covers replace the summary. [fold.View.History] states the exact rules. History reads the hidden
// events from the log. It fails with [ErrNotFound] if the session was deleted.
func (s *Store) History(ctx context.Context, key Key, v fold.View) ([]fold.Entry, error) {
	return s.HistoryPage(ctx, key, v, "", math.MaxInt)
}

// HistoryPage returns at most limit entries of [Store.History]. The argument before is the id of the event
// directly after the page. If this id is "", the page ends at the end of the history. HistoryPage reads only the
// hidden events of the page. The error matches [fold.ErrEventNotFound] if the history does not contain the event.
// HistoryPage also returns the errors of History.
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
