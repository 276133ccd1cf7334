package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// EraseUser erases all events of all sessions of a user of an app, as [Store.Erase] does with
// All, the same events in sessions of others, such as forks, and the values of the state that the
// user's sessions share. The sessions, their keys and their ids stay: [Store.Delete] removes
// them. The receipts have one id. State values become null unless opts.Values says that they are kept.
//
// First all sessions get their receipts, then they are erased one after the other, in bounded steps,
// and others write in between. What is appended to a session after its receipt is not erased: let the
// user's agents end first. A session of another user without records is not known as a fork. If it
// fails, or the process ends, the same call with the same id goes on where it ended: pass one.
//
// It fails with [ErrInvalid] if app or user are empty, or the options make no sense. A session that
// is damaged is left out, and named in OutOfReach.
func (s *Store) EraseUser(ctx context.Context, app, user string, opts EraseOptions) (Erasure, error) {
	if app == "" || user == "" {
		return Erasure{}, fmt.Errorf("%w: erasing a user takes an app and a user, and has %q and %q", ErrInvalid, app, user)
	}
	if opts.Values == "" {
		opts.Values = patch.NullValues
	}
	e, err := s.newErasing(opts)
	if err != nil {
		return Erasure{}, err
	}
	u := userErasing{erasing: e, app: app, user: user, copies: map[Key][]Info{}, looked: map[string]bool{}, begun: map[Key][]*erasePlan{}}
	sessions, err := u.look(ctx)
	if err != nil {
		return Erasure{}, err
	}
	var out Erasure
	each := func(keys []Key, do func(key Key) error) error {
		for _, key := range keys {
			e.leftOut = nil
			e.others = func(context.Context) iter.Seq2[Info, error] { return infos(u.copies[key]) }
			err := do(key)
			u.damaged = append(u.damaged, e.leftOut...)
			switch {
			case errors.Is(err, ErrNotFound): // deleted meanwhile
			case errors.Is(err, ErrCorrupt):
				u.damaged = append(u.damaged, fmt.Sprintf("session %s, which is damaged: %v", key, err))
			case err != nil:
				return err
			}
		}
		return nil
	}
	if opts.DryRun {
		err = each(sessions, func(key Key) error {
			plans, err := e.plans(ctx, key, EraseSelection{All: true})
			out.add(e.result(plans))
			return err
		})
	} else {
		// Forks that others make before the receipt of what they fork are found by another look.
		for more := sessions; err == nil && len(more) > 0; {
			err = each(more, func(key Key) error { return u.begin(ctx, key, &out) })
			if err == nil {
				more, err = u.look(ctx)
			}
			sessions = append(sessions, more...)
		}
		if err == nil {
			err = each(sessions, func(key Key) error {
				plans := u.begun[key]
				delete(u.begun, key)
				if plans == nil {
					return nil
				}
				return u.carryOut(ctx, key, plans)
			})
		}
	}
	if err != nil {
		return out, err
	}
	if opts.Values == patch.NullValues {
		if out.Shared, err = s.eraseShared(ctx, []string{prefixOf("user", app, user)}, func(patch.Value, error) bool { return true }, opts.DryRun); err != nil {
			return out, err
		}
	} else if !opts.DryRun {
		if err := s.confirmShared(ctx); err != nil { // an earlier call may have done it all
			return out, err
		}
	}
	out.Sessions = e.withReverted(out.Sessions)
	slices.Sort(u.damaged)
	u.damaged = slices.Compact(u.damaged)
	out.Salt, out.OutOfReach = e.opts.Salt, append(slices.Clone(outOfReach), u.damaged...)
	out.OutOfReach = append(out.OutOfReach, "values of the app's shared state, the keys of all state, and the names of sessions")
	return out, nil
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

// userErasing is an erasing of all sessions of a user: first the receipts of all, then what they say.
type userErasing struct {
	*erasing
	app, user string
	own       []firstOf
	copies    map[Key][]Info       // sessions of others that have a session's first event
	looked    map[string]bool      // creation ids of sessions that were found
	begun     map[Key][]*erasePlan // of a session and its copies; with no more than carryOut needs
	damaged   []string
}

// firstOf is a session and its first record.
type firstOf struct {
	key   Key
	first patch.Record
}

// look finds sessions that it has not found before: the user's, and those of others that begin as one of
// these does. It returns the user's sessions that are new or have new copies.
func (u *userErasing) look(ctx context.Context) (found []Key, err error) {
	u.leftOut = nil
	for info, err := range u.store.List(ctx, ListOptions{App: u.app, User: u.user}) {
		if err == nil && u.looked[info.Creation] {
			continue
		}
		var first patch.Record
		if err == nil && info.Seq > 0 {
			first, err = u.store.record(ctx, info.Key, info.Creation, 1)
		}
		switch {
		case errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrCorrupt):
			u.leaveOut(info.Key, err)
		case err != nil:
			return nil, err
		default:
			u.looked[info.Creation] = true
			u.own = append(u.own, firstOf{info.Key, first})
			found = append(found, info.Key)
		}
	}
	of := map[string][]firstOf{}
	for _, own := range u.own {
		if id := own.first.ID(); id != "" {
			of[id] = append(of[id], own)
		}
	}
	for info, err := range u.store.List(ctx, ListOptions{}) {
		switch {
		case errors.Is(err, ErrCorrupt):
			u.leaveOut(info.Key, err)
			continue
		case err != nil:
			return nil, err
		case info.Key.App == u.app && info.Key.User == u.user || u.looked[info.Creation] || info.Seq == 0:
			continue
		}
		u.looked[info.Creation] = true
		there, err := u.store.record(ctx, info.Key, info.Creation, 1)
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case errors.Is(err, ErrCorrupt):
			u.leaveOut(info.Key, err)
			continue
		case err != nil:
			return nil, err
		}
		for _, own := range of[there.ID()] {
			if isSame(there, own.first) {
				u.copies[own.key] = append(u.copies[own.key], info)
				found = append(found, own.key)
			}
		}
	}
	u.damaged = append(u.damaged, u.leftOut...)
	slices.SortFunc(found, func(a, b Key) int { return cmp.Compare(a.name(), b.name()) })
	return slices.Compact(found), nil
}

// begin logs the receipts of a session and its copies, also of copies that were found since it was called
// before, and adds to the result what is erased.
func (u *userErasing) begin(ctx context.Context, key Key, out *Erasure) error {
	again, sessions, plans, err := u.resume(ctx, key, u.opts.ID)
	u.leftOut = again.leftOut
	one := u.result(plans)
	one.Kept = KeptValues{}
	if sessions == nil && err == nil {
		plans, err = u.erasing.begin(ctx, key, EraseSelection{All: true})
		one = u.result(plans)
	} else {
		one.Sessions = append(sessions, slices.DeleteFunc(one.Sessions, func(s ErasedSession) bool {
			return slices.ContainsFunc(sessions, func(there ErasedSession) bool { return s.Key == there.Key })
		})...)
	}
	before := u.begun[key]
	if before != nil {
		one.Sessions = slices.DeleteFunc(one.Sessions, func(s ErasedSession) bool {
			return slices.ContainsFunc(out.Sessions, func(there ErasedSession) bool { return s.Key == there.Key })
		})
	}
	if err != nil {
		return err
	}
	out.add(one)
	var begun []*erasePlan
	for _, p := range plans {
		begun = append(begun, &erasePlan{key: p.key, view: fold.New(p.view.Creation(), nil), open: p.open})
	}
	u.begun[key] = append(begun, before[min(1, len(before)):]...)
	return nil
}

// add adds what was erased of more sessions.
func (e *Erasure) add(more Erasure) {
	e.Sessions = append(e.Sessions, more.Sessions...)
	e.Kept.Events += more.Kept.Events
	e.Kept.Initial = append(e.Kept.Initial, more.Kept.Initial...)
}

// eraseShared sets those of the shared values with the prefixes to null that are to be and are not, and returns
// their keys. which is given a value, or the error of one that cannot be read. A value that is written meanwhile
// is looked at again.
func (s *Store) eraseShared(ctx context.Context, prefixes []string, which func(patch.Value, error) bool, dryRun bool) (names []string, err error) {
	data, err := erase.Null.MarshalBinary()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		news, err := s.backend.Look(ctx, backend.Query{Shared: prefixes})
		if err != nil {
			return nil, fromBackend(Key{}, err)
		}
		before := slices.Clone(names)
		var changes []backend.SharedChange
		for i, prefix := range prefixes {
			for _, v := range news.Shared[i] {
				if value, err := sharedValue(v); err == nil && erase.IsNull(value) || !which(value, err) {
					continue
				}
				names = append(names, v.Name[len(prefix):])
				changes = append(changes, backend.SharedChange{Old: &v, Name: v.Name, Data: data})
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
		switch {
		case dryRun:
			return names, nil
		case len(changes) == 0:
			return names, s.confirmShared(ctx) // an earlier call may have done it all
		}
		err = s.putShared(ctx, changes)
		switch {
		case err == nil:
			return names, nil
		case try == eraseTries || !errors.Is(err, backend.ErrMoved):
			return nil, fromBackend(Key{}, err)
		}
		names = before
	}
}
