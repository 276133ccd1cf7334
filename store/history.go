package store

import (
	"context"

	"github.com/patchlog-dev/patchlog/fold"
)

// History returns what people should see of a session as it stands in a view that the store
// gave: the visible log with what each summary stands for in its place. It is as
// [fold.View.History], and reads from the log what that needs: the events behind the summaries. It
// fails with [ErrNotFound] if the session is gone.
func (s *Store) History(ctx context.Context, key Key, v fold.View) ([]fold.Entry, error) {
	var entries []fold.Entry
	err := s.withRecords(ctx, key, v, nil, func(v fold.View) (err error) {
		entries, err = v.History()
		return err
	})
	return entries, err
}
