package erase

import (
	"context"
	"errors"
	"iter"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

// User erases all sessions of a user.
//
// The first session with content to erase gets a call whose receipt is marked as erasing a user. Before that call
// continues with the relatives of its session, User makes a call with the same id for every other session. The shared
// values of the user become null too. If we crash meanwhile, the marked call is not done, and a later call resumes it.
type User struct {
	Log      Log
	Sessions func(ctx context.Context) iter.Seq2[Session, error]
	Options  Options
	IDGiven  bool // the caller supplied the id

	// Calls are the calls made so far, even if Run fails.
	Calls []*Call

	// Shared sets the user's shared values to null. With DryRun it only finds them.
	Shared func(ctx context.Context) error
}

// All selects all content.
var All = Selection{All: true, Choose: func(patch.Record) (bool, func(int, *patch.Event) bool) {
	return true, func(int, *patch.Event) bool { return true }
}}

// Run erases the sessions. If a marked receipt with the given id exists, Run finishes that call and selects nothing.
func (u *User) Run(ctx context.Context) error {
	first, s, err := u.findMarked(ctx)
	if err != nil {
		return err
	}
	if first.Seq > 0 {
		c, err := resume(ctx, u.Log, s, first, func(ctx context.Context) error { return u.EraseOthers(ctx, s.Name) })
		u.Calls = append(u.Calls, c)
		return err
	}
	for s, err := range u.Sessions(ctx) {
		if err != nil {
			return err
		}
		o := u.Options
		o.User = func(ctx context.Context) error { return u.EraseOthers(ctx, s.Name) }
		c, err := u.call(ctx, s, o, u.IDGiven)
		if err != nil || c.own != nil && c.own.Receipt.Seq > 0 && receipt.Decode(c.own.Receipt).Erasure.OfUser {
			return err
		}
	}
	return u.Shared(ctx) // no session has content to erase
}

// findMarked returns the receipt that is marked as erasing the user, or the zero Receipt.
func (u *User) findMarked(ctx context.Context) (receipt.Receipt, Session, error) {
	if !u.IDGiven || u.Options.DryRun {
		return receipt.Receipt{}, Session{}, nil
	}
	for s, err := range u.Sessions(ctx) {
		if err != nil || s.Err != nil {
			if err != nil {
				return receipt.Receipt{}, s, err
			}
			continue
		}
		r, s, err := receiptOfCall(ctx, u.Log, s.Name, u.Options.ID)
		if err == nil && r.Seq > 0 && r.Erasure.OfUser {
			return r, s, nil
		}
		if err != nil && !u.Log.IsNotFound(err) && !errors.Is(err, patch.ErrCorrupt) {
			return receipt.Receipt{}, s, err
		}
	}
	return receipt.Receipt{}, Session{}, nil
}

// EraseOthers makes the calls of all sessions except one. It then erases the shared values.
func (u *User) EraseOthers(ctx context.Context, except string) error {
	for s, err := range u.Sessions(ctx) {
		if err == nil && s.Name != except {
			_, err = u.call(ctx, s, u.Options, true)
		}
		if err != nil {
			return err
		}
	}
	return u.Shared(ctx)
}

// call makes the call of one session, unless the session is gone or damaged.
func (u *User) call(ctx context.Context, s Session, o Options, given bool) (*Call, error) {
	at, c, err := len(u.Calls), newCall(u.Log, All, o), s.Err
	u.Calls = append(u.Calls, c) // added now, so that it precedes the calls made by this call
	if err == nil {
		c, err = Run(ctx, u.Log, s.Name, All, o, given)
		u.Calls[at] = c
	}
	if c.skips(s.Name, err) {
		return c, nil
	}
	return c, err
}
