package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/store"
)

// Erase erases the contents of selected events in a session or in all sessions, or of all events of a user.
type Erase struct {
	Key        store.Key // with AllOfUser, only App and User are used
	AllOfUser  bool
	Everywhere bool                 // in all sessions, not only in Key
	Filter     func(store.Key) bool // restricts Everywhere to these sessions; nil means all
	Selection  store.EraseSelection
	Options    store.EraseOptions
}

// Apply erases permanently. With Options.DryRun it only returns what would be erased. If an error occurs, it
// also returns the content that was already erased.
func (e Erase) Apply(ctx context.Context, s *store.Store) (store.Erasure, error) {
	switch {
	case e.Everywhere:
		return e.everywhere(ctx, s)
	case e.AllOfUser:
		return s.EraseUser(ctx, e.Key.App, e.Key.User, e.Options)
	}
	return s.Erase(ctx, e.Key, e.Selection, e.Options)
}

// everywhere applies the erasure to one session after the other.
func (e Erase) everywhere(ctx context.Context, s *store.Store) (store.Erasure, error) {
	var all store.Erasure
	var keys []store.Key
	for info, err := range s.List(ctx, store.ListOptions{}) {
		switch {
		case e.Filter != nil && !e.Filter(info.Key): // the result must not name such a session
		case errors.Is(err, store.ErrCorrupt):
			all.OutOfReach = append(all.OutOfReach, fmt.Sprintf("session %s, which is damaged", info.Key))
		case err != nil:
			return all, err
		default:
			keys = append(keys, info.Key)
		}
	}
	e.Everywhere = false
	for _, e.Key = range keys {
		done, err := e.Apply(ctx, s)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted since it was listed
		}
		if err != nil {
			return all, err
		}
		all = mergeErasures(all, done)
	}
	return all, nil
}

// mergeErasures returns the union of two erasures. In a dry run, a fork can appear in the erasure of its source and in
// its own. If a shared key still has a match, the match is counted once per session that shares the key.
func mergeErasures(a, b store.Erasure) store.Erasure {
	for _, session := range b.Sessions {
		at := slices.IndexFunc(a.Sessions, func(s store.ErasedSession) bool {
			return s.Key == session.Key && s.Receipt.Patch == nil && session.Receipt.Patch == nil
		})
		if at < 0 {
			a.Sessions = append(a.Sessions, session)
			continue
		}
		existing := &a.Sessions[at]
		for _, event := range session.Events {
			if !slices.ContainsFunc(existing.Events, func(e store.ErasedEvent) bool { return e.Seq == event.Seq && e.Index == event.Index }) {
				existing.Events = append(existing.Events, event)
			}
		}
		slices.SortFunc(existing.Events, func(a, b store.ErasedEvent) int { return int(a.Seq) - int(b.Seq) })
		existing.Initial = union(existing.Initial, session.Initial)
	}
	a.Shared, a.OutOfReach = union(a.Shared, b.Shared), union(a.OutOfReach, b.OutOfReach)
	a.RemainingMatches += b.RemainingMatches
	return a
}

func union(a, b []string) []string {
	for _, text := range b {
		if !slices.Contains(a, text) {
			a = append(a, text)
		}
	}
	return a
}
