package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// EraseUser erases all events of all sessions of a user of an app, as [Store.Erase] does with
// All, the same events in sessions of other users, such as forks, and the values of the state that the
// user's sessions share. The sessions, their keys and their ids stay: [Store.Delete] removes
// them. The receipts have one id. State values become null unless opts.Values says that they are kept.
//
// First all sessions get their receipts, then they are erased one after the other, in bounded steps,
// and other calls write in between. Events that are appended to a session after its receipt are not erased: let the
// user's agents end first. A session of another user without records is not known as a fork. If it
// fails, or the process ends, the same call with the same id goes on where it ended: pass one.
//
// It fails with [ErrInvalid] if app or user are empty, or the options make no sense. A session that
// is damaged is left out, and named in OutOfReach.
func (s *Store) EraseUser(ctx context.Context, app, user string, opts EraseOptions) (Erasure, error) {
	if app == "" || user == "" {
		return Erasure{}, fmt.Errorf("%w: erasing a user takes an app and a user, and has %q and %q", ErrInvalid, app, user)
	}
	opts.Values = cmp.Or(opts.Values, patch.NullValues)
	e, err := s.newErasing(EraseSelection{All: true}, opts)
	if err != nil {
		return Erasure{}, err
	}
	u := userErasing{store: s, app: app, user: user, looked: map[string]bool{}, own: map[Key]string{}, alike: map[string][]Info{}}
	type begun struct {
		*erasing
		key   Key
		plans []*erasePlan
	}
	var work []begun
	out := Erasure{OutOfReach: slices.Clone(outOfReach)}
	keys, err := u.look(ctx)
	for err == nil && len(keys) > 0 {
		for _, key := range keys {
			one := *e
			one.given = true
			one.others = func(context.Context) iter.Seq2[Info, error] { return infos(u.alike[u.own[key]]) }
			w := begun{key: key}
			w.erasing, w.plans, err = one.begin(ctx, key)
			work = append(work, w)
			if err = u.leaveOut(key, err); err != nil {
				break
			}
		}
		if err == nil { // forks may have been made before the receipt of what they fork
			keys, err = u.look(ctx)
		}
	}
	for _, w := range work {
		if err == nil && !opts.DryRun && w.plans != nil {
			err = u.leaveOut(w.key, w.carryOut(ctx, w.key, w.plans))
		}
		out.add(w.result(w.plans))
	}
	if err != nil {
		return out, err
	}
	out.add(Erasure{OutOfReach: u.damaged})
	if opts.Values == patch.NullValues {
		out.Shared, err = s.eraseShared(ctx, []string{prefixOf("user", app, user)}, func(patch.Value, error) bool { return true }, opts.DryRun)
	} else if !opts.DryRun { // an earlier call may have done it all
		err = s.confirm(ctx)
	}
	return out, err
}

// userErasing finds the sessions of a user, and those of other users that may have the same events.
type userErasing struct {
	store     *Store
	app, user string
	own       map[Key]string    // ids of the first records of the user's sessions
	alike     map[string][]Info // sessions of other users, by the ids of their first records
	looked    map[string]bool   // creation ids of sessions that were found
	damaged   []string
}

// leaveOut returns the error of a session, unless it was deleted meanwhile or is damaged.
func (u *userErasing) leaveOut(key Key, err error) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case errors.Is(err, ErrCorrupt):
		u.damaged = append(u.damaged, damaged(key, err))
		return nil
	}
	return err
}

func infos(list []Info) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for _, info := range list {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// look finds the sessions that earlier looks did not find. It returns the user's new sessions, and those whose first
// record a new session of another user may have too.
func (u *userErasing) look(ctx context.Context) (found []Key, err error) {
	news := map[string]bool{} // ids of first records
	for info, err := range u.store.List(ctx, ListOptions{}) {
		if err == nil && u.looked[info.Creation] {
			continue
		}
		id := ""
		if err == nil && info.Seq > 0 {
			var first patch.Record
			first, err = u.store.record(ctx, info.Key, info.Creation, 1)
			id = first.ID()
		}
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case errors.Is(err, ErrCorrupt):
			u.damaged = append(u.damaged, damaged(info.Key, err))
			continue
		case err != nil:
			return nil, err
		}
		u.looked[info.Creation] = true
		if info.Key.App == u.app && info.Key.User == u.user {
			u.own[info.Key] = id
			found = append(found, info.Key)
		} else if id != "" {
			u.alike[id], news[id] = append(u.alike[id], info), true
		}
	}
	for key, id := range u.own {
		if news[id] && !slices.Contains(found, key) {
			found = append(found, key)
		}
	}
	slices.SortFunc(found, func(a, b Key) int { return cmp.Compare(a.name(), b.name()) })
	return found, nil
}

// add adds an erasure of more sessions. A session that was erased twice is named once.
func (e *Erasure) add(more Erasure) {
	for _, s := range more.Sessions {
		if !slices.ContainsFunc(e.Sessions, func(there ErasedSession) bool { return s.Key == there.Key }) {
			e.Sessions = append(e.Sessions, s)
		}
	}
	e.RemainingMatches += more.RemainingMatches
	for _, text := range more.OutOfReach {
		if !slices.Contains(e.OutOfReach, text) {
			e.OutOfReach = append(e.OutOfReach, text)
		}
	}
}
