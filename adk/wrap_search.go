package adk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// Search searches the session as it is in the base, with an index of its own.
func (b *based) Search(ctx context.Context, key store.Key, search recall.Search) ([]store.Hit, error) {
	for tries := 0; ; tries++ {
		hits, err := b.finder.Search(ctx, key, search)
		if !errors.Is(err, errReordered) || tries == maxStale { // the base gave the events in another order meanwhile
			return hits, err
		}
	}
}

// SearchUser reads and searches the user's sessions that the base lists, one after the other. One that
// cannot be read is left out.
func (b *based) SearchUser(ctx context.Context, app, user string, search recall.Search, opts store.SearchUserOptions) ([]store.Hit, error) {
	keys := func(yield func(store.Key, error) bool) {
		for info, err := range b.List(ctx, store.ListOptions{App: app, User: user}) {
			if (err != nil || !slices.Contains(opts.Except, info.Key)) && !yield(info.Key, err) {
				return
			}
		}
	}
	return b.finder.SearchAll(ctx, keys, func(key store.Key, err error) bool {
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, store.ErrNotFound):
		case opts.LeftOut != nil:
			opts.LeftOut(key, err)
		default:
			b.logger.Warn("patchlog: a session that cannot be read is left out of a search", "session", key.String(), "error", err)
		}
		return true
	}, search)
}

// Handle names an event by its id: in a base, seqs are no names that last.
func (b *based) Handle(_ uint64, _ int, e *patch.Event) string { return idHandle + e.ID() }

// searched is a base as a finder reads it: what is known of a session is in memory.
type searched struct{ *based }

// View returns the view of the session as it is in the base.
func (s searched) View(ctx context.Context, key store.Key) (v fold.View, err error) {
	err = s.withNewest(ctx, key, func(l *line) error {
		v = l.own.view
		return nil
	})
	return v, err
}

// RecordsFrom yields records of the session.
func (s searched) RecordsFrom(ctx context.Context, key store.Key, v fold.View, from uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		records, err := s.known(ctx, key, v)
		if err != nil {
			yield(patch.Record{}, err)
			return
		}
		for _, r := range records[min(from-1, uint64(len(records))):] {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Records returns records of the session.
func (s searched) Records(ctx context.Context, key store.Key, v fold.View, seqs []uint64) (out []patch.Record, err error) {
	records, err := s.known(ctx, key, v)
	if err != nil {
		return nil, err
	}
	for _, seq := range seqs {
		if seq > uint64(len(records)) {
			return nil, fmt.Errorf("session %s: %w: it has no record %d", key, store.ErrNotFound, seq)
		}
		out = append(out, records[seq-1])
	}
	return out, nil
}

// known returns the records of the session that a view is of, as far as the view knows them.
func (s searched) known(ctx context.Context, key store.Key, v fold.View) (records []patch.Record, err error) {
	err = s.withKnown(ctx, key, func(l *line) error {
		if l.creation() != v.Creation() || v.Seq() > uint64(len(l.own.records)) {
			return errReordered
		}
		records = l.own.records[:v.Seq()]
		return nil
	})
	return records, err
}
