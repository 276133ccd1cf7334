package store

import (
	"context"
	"errors"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// lookup returns the seqs of the records of a view's log that take the ids, of those that
// are taken.
func (s *Store) lookup(ctx context.Context, key Key, v fold.View, ids []string) (map[string]uint64, error) {
	seqs, err := s.backend.Lookup(ctx, key.name(), v.Creation(), ids)
	if errors.Is(err, backend.ErrIndex) {
		return s.search(ctx, key, v, ids, err)
	}
	if err != nil {
		return nil, fromBackend(key, err)
	}
	taken := map[string]uint64{}
	for i, seq := range seqs {
		if seq != 0 {
			taken[ids[i]] = seq
		}
	}
	return taken, nil
}

// search is lookup where the index is damaged: the log has the answer.
func (s *Store) search(ctx context.Context, key Key, v fold.View, ids []string, cause error) (map[string]uint64, error) {
	s.opts.Logger.Warn("patchlog: the index of ids is damaged; each write reads the log for them", "session", key.String(), "error", cause)
	taken := map[string]uint64{}
	for _, id := range ids {
		taken[id] = 0
	}
	take := func(id string, seq uint64) {
		if at, wanted := taken[id]; wanted && at == 0 {
			taken[id] = seq
		}
	}
	for page, err := range s.pages(ctx, key, logOf(v), 1, v.Seq()) {
		if err != nil {
			return nil, err
		}
		for _, r := range page.records {
			for id := range r.IDs() {
				take(id, r.Seq)
			}
			if id := groupOf(r); id != "" {
				take(id, r.Seq)
			}
		}
	}
	return taken, nil
}
