package store

import (
	"context"

	"github.com/patchlog-dev/patchlog/fold"
)

// History returns what people should see of a session in one of its views: the visible log with the events that each summary
// covers in its place. It is [fold.View.History], and reads the hidden events that this needs from the log. It fails with
// [ErrNotFound] if the session is gone.
func (s *Store) History(ctx context.Context, key Key, v fold.View) ([]fold.Entry, error) {
	var entries []fold.Entry
	err := s.withRecords(ctx, key, v, nil, func(v fold.View) (err error) {
		entries, err = v.History()
		return err
	})
	return entries, err
}
