package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// EraseUser erases all events of all sessions of a user of an app, as [Store.Erase] does with
// All, the same events in sessions of others, such as forks, and the values of the state that the
// user's sessions share. The sessions, their keys and their ids stay: [Store.Delete] removes
// them. The receipts have one id. State values become null unless opts.Values says that they are kept.
//
// Sessions are erased one after the other, in bounded steps, and others write in between. What is
// appended to a session after its receipt is not erased: let the user's agents end first. If it
// fails, or the process ends, the same call with the same id goes on where it ended: pass one.
//
// It fails with [ErrInvalid] if app or user are empty, or the options make no sense. A session that
// is damaged is left out, and named in OutOfReach. An error that matches [ErrNotRemade], about
// sessions of others, comes when all is done, beside the whole Erasure.
func (s *Store) EraseUser(ctx context.Context, app, user string, opts EraseOptions) (Erasure, error) {
	return s.eraseUser(ctx, app, user, opts, false)
}

// PlanEraseUser returns what [Store.EraseUser] would do, and writes nothing.
func (s *Store) PlanEraseUser(ctx context.Context, app, user string, opts EraseOptions) (Erasure, error) {
	return s.eraseUser(ctx, app, user, opts, true)
}

func (s *Store) eraseUser(ctx context.Context, app, user string, opts EraseOptions, dryRun bool) (Erasure, error) {
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
	e.given = true // to the sessions but the first, in any case
	u := userErasing{erasing: e, app: app, user: user, copies: map[Key][]Info{}, looked: map[string]bool{}}
	if err := u.begin(ctx); err != nil {
		return Erasure{}, err
	}
	var out Erasure
	var notRemade error
	leftOut := e.leftOut
	for _, own := range u.sessions {
		e.others = func(context.Context) iter.Seq2[Info, error] { return infos(u.copies[own.key]) }
		one, err := e.do(ctx, own.key, EraseSelection{All: true}, dryRun)
		leftOut = append(leftOut, e.leftOut...)
		switch {
		case errors.Is(err, ErrNotRemade):
			notRemade = errors.Join(notRemade, err)
		case errors.Is(err, ErrNotFound): // deleted meanwhile
		case errors.Is(err, ErrCorrupt):
			leftOut = append(leftOut, fmt.Sprintf("session %s, which is damaged: %v", own.key, err))
		case err != nil:
			return out, err
		}
		out.Sessions = append(out.Sessions, one.Sessions...)
		out.Kept.Events += one.Kept.Events
		out.Kept.Initial = append(out.Kept.Initial, one.Kept.Initial...)
	}
	if !dryRun {
		late, err := u.late(ctx)
		out.Sessions = append(out.Sessions, late...)
		switch {
		case errors.Is(err, ErrNotRemade):
			notRemade = errors.Join(notRemade, err)
		case err != nil:
			return out, err
		}
	}
	if opts.Values == patch.NullValues {
		if out.Shared, err = s.eraseShared(ctx, app, user, dryRun); err != nil {
			return out, err
		}
	}
	out.Salt, out.OutOfReach = e.opts.Salt, append(slices.Clone(outOfReach), leftOut...)
	out.OutOfReach = append(out.OutOfReach, "values of the app's shared state, the keys of all state, and the names of sessions")
	return out, notRemade
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

// userErasing is an erasing of all sessions of a user.
type userErasing struct {
	*erasing
	app, user string
	sessions  []firstOf
	copies    map[Key][]Info  // sessions of others that have a session's first event
	looked    map[string]bool // creation ids of sessions of others
}

// firstOf is a session and its first record.
type firstOf struct {
	key   Key
	first patch.Record
}

// begin finds the user's sessions, and those of others that begin as one of them does.
func (u *userErasing) begin(ctx context.Context) error {
	for info, err := range u.store.List(ctx, ListOptions{App: u.app, User: u.user}) {
		var first patch.Record
		if err == nil && info.Seq > 0 {
			first, err = u.store.record(ctx, info.Key, info.Creation, 1)
		}
		switch {
		case errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrCorrupt):
			u.leaveOut(info.Key, err)
		case err != nil:
			return err
		default:
			u.sessions = append(u.sessions, firstOf{info.Key, first})
		}
	}
	return u.look(ctx)
}

// look looks for copies in sessions of others that it has not looked at.
func (u *userErasing) look(ctx context.Context) error {
	of := map[string][]firstOf{}
	for _, own := range u.sessions {
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
			return err
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
			return err
		}
		for _, own := range of[there.ID()] {
			if patch.Same(there, own.first) || patch.Same(own.first, there) {
				u.copies[own.key] = append(u.copies[own.key], info)
			}
		}
	}
	return nil
}

// late erases what sessions of others have that were made of the user's while these were
// erased: the records that are still those, as far as a blank tells.
func (u *userErasing) late(ctx context.Context) (out []ErasedSession, err error) {
	before := map[Key]int{}
	for key, list := range u.copies {
		before[key] = len(list)
	}
	if err := u.look(ctx); err != nil {
		return nil, err
	}
	for key, list := range u.copies {
		for _, info := range list[before[key]:] {
			same := func(r patch.Record) (bool, func(int, *patch.Event) bool) {
				head, err := u.store.backend.Head(ctx, key.name())
				var own patch.Record
				if err == nil && r.Seq <= head.Last {
					own, err = u.store.record(ctx, key, head.Creation, r.Seq)
				}
				ok := err == nil && own.ID() == r.ID() && patch.Same(own, r)
				return ok, func(int, *patch.Event) bool { return ok }
			}
			p, err := u.planSame(ctx, info, same)
			if err == nil {
				err = u.carryOut(ctx, key, []*erasePlan{p})
			}
			if err != nil && !errors.Is(err, ErrNotFound) {
				return out, err
			}
			if err == nil {
				out = append(out, u.result([]*erasePlan{p}).Sessions...)
			}
		}
	}
	return u.remakeAll(ctx, out)
}

// eraseShared sets the values of the state that a user's sessions share to null.
func (s *Store) eraseShared(ctx context.Context, app, user string, dryRun bool) (names []string, err error) {
	names, nulls, err := s.nullShared(ctx, []string{prefixOf("user", app, user)}, func(patch.Value, error) bool { return true })
	if err != nil || dryRun {
		return names, err
	}
	return names, s.putShared(ctx, nulls)
}

// nullShared returns the keys of those shared values that are to be null and are not, and what to store
// for them. which is given a value, or the error of one that cannot be read.
func (s *Store) nullShared(ctx context.Context, prefixes []string, which func(patch.Value, error) bool) (names []string, nulls []backend.Value, err error) {
	data, err := null.MarshalBinary()
	if err != nil {
		return nil, nil, err
	}
	values, err := s.sharedValues(ctx, prefixes)
	if err != nil {
		return nil, nil, fromBackend(Key{}, err)
	}
	for i, prefix := range prefixes {
		for _, v := range values[i] {
			if value, err := sharedValue(v); err == nil && isNull(value) || !which(value, err) {
				continue
			}
			names = append(names, v.Name[len(prefix):])
			nulls = append(nulls, backend.Value{Name: v.Name, Data: data})
		}
	}
	return names, nulls, nil
}
