package store

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// Search finds events in the raw log of a session by their words, the best first: those that
// patches hide too, unless the search says otherwise. The ranking is BM25 over each event and those
// beside it; identifiers such as ids, paths and numbers find the events that have them word for
// word. The search's field On, if set, must be a view of the session that the store gave.
//
// The first search of a session reads its log, and makes an index of it in memory; later ones add
// what was appended since. The indexes that were used last are kept, within [Options.SearchBytes].
// A session that is not searched costs nothing. Errors match [ErrInvalid], or are as those of
// [Store.RawEvents].
func (s *Store) Search(ctx context.Context, key Key, search recall.Search) ([]recall.Hit[Key], error) {
	hits, err := s.finder.Search(ctx, key, search)
	if errors.Is(err, ErrNotFound) {
		s.finder.Forget(key)
	}
	return hits, err
}

// SearchUserOptions are options of [Store.SearchUser]. The zero value means the defaults.
type SearchUserOptions struct {
	// Except are sessions that are not searched.
	Except []Key

	// LeftOut, if not nil, is told of each session that could not be searched, since it is damaged,
	// in place of the logger. The key is as much of it as is known.
	LeftOut func(key Key, err error)
}

// SearchUser is [Store.Search] over all sessions of a user of an app, whose events are ranked
// together. Sessions that are created, deleted or written to meanwhile may be searched as they were
// or as they are. One that is damaged is left out, with a warning to the logger. It fails with
// [ErrInvalid] if app or user are empty, or if the search has a view.
func (s *Store) SearchUser(ctx context.Context, app, user string, search recall.Search, opts SearchUserOptions) ([]recall.Hit[Key], error) {
	switch {
	case app == "" || user == "":
		return nil, fmt.Errorf("%w: a search over sessions takes an app and a user, and has %q and %q", ErrInvalid, app, user)
	case search.View != nil:
		return nil, &patch.FieldError{Field: "Search.View", Problem: "a view is of one session; leave it out to search several"}
	}
	leftOut := opts.LeftOut
	if leftOut == nil {
		leftOut = func(key Key, err error) {
			s.opts.Logger.Warn("patchlog: a damaged session is left out of a search", "session", key.String(), "error", err)
		}
	}
	except := make(map[Key]bool, len(opts.Except))
	for _, key := range opts.Except {
		except[key] = true
	}
	keys := func(yield func(Key, error) bool) {
		for info, err := range s.List(ctx, ListOptions{App: app, User: user}) {
			switch {
			case errors.Is(err, ErrCorrupt):
				leftOut(info.Key, err)
			case err == nil && except[info.Key]:
			case !yield(info.Key, err):
				return
			}
		}
	}
	return s.finder.SearchAll(ctx, keys, func(key Key, err error) bool {
		switch {
		case errors.Is(err, ErrNotFound):
			s.finder.Forget(key)
			return true
		case errors.Is(err, ErrCorrupt):
			leftOut(key, err)
			return true
		}
		return false
	}, search)
}

// searchedLog is the store as a finder reads it.
type searchedLog struct{ *Store }

// RecordsFrom yields the records from a seq up to the view's.
func (l searchedLog) RecordsFrom(ctx context.Context, key Key, v fold.View, from uint64) iter.Seq2[patch.Record, error] {
	return l.Store.records(ctx, key, logOf(v), from, v.Seq())
}

// Records returns records of the view's log.
func (l searchedLog) Records(ctx context.Context, key Key, v fold.View, seqs []uint64) ([]patch.Record, error) {
	return l.pick(ctx, key, v.Creation(), seqs)
}
