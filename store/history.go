package store

import (
	"context"
	"errors"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// History returns what people should see of a session as it stands in a view that the store
// gave: the visible log with what each summary stands for in its place. It is as
// [fold.View.History], and reads from the log what that needs: the events behind the summaries. It
// fails with [ErrNotFound] if the session is gone.
func (s *Store) History(ctx context.Context, key Key, v fold.View) ([]fold.Entry, error) {
	return askingLog(ctx, s, key, v, fold.View.History)
}

// HistoryParts returns the history in parts, one for each visible event, by its index: what the event
// stands for, or else itself. It reads and fails as [Store.History].
func (s *Store) HistoryParts(ctx context.Context, key Key, v fold.View) ([][]fold.Entry, error) {
	entries, err := s.History(ctx, key, v)
	if err != nil {
		return nil, err
	}
	parts := make([][]fold.Entry, v.Len())
	for _, e := range entries {
		if e.Index >= 0 {
			parts[e.Index] = append(parts[e.Index], e)
		}
	}
	return parts, nil
}

// askingLog asks a view, and gives it what it needs to answer.
func askingLog[T any](ctx context.Context, s *Store, key Key, v fold.View, ask func(fold.View) ([]T, error)) ([]T, error) {
	var read []patch.Record
	has := map[uint64]bool{}
	for {
		entries, err := ask(v.With(read))
		var need *fold.NeedError
		if !errors.As(err, &need) {
			return entries, err
		}
		lacking := slices.DeleteFunc(need.Seqs, func(seq uint64) bool { return has[seq] })
		more, err := s.pick(ctx, key, v.Creation(), lacking)
		if err != nil {
			return nil, err
		}
		read = append(read, more...)
		for _, seq := range lacking {
			has[seq] = true
		}
	}
}
