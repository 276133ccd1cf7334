package adk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Revert undoes a patch and all other patches of its group, as [store.Store.Revert] does. For example, the patches
// of one compaction pass are a group. The events that the patches hid become visible again, and their state changes
// take effect again. Afterwards sess shows the new view.
//
// The call that logged a patch returns its id in [store.Committed]. [Service.RawEvents] yields it too. A revert is
// a patch with its own id, so it can be reverted. If Revert refuses, it writes nothing. Errors are as for
// [store.Store.Revert].
func (s *Service) Revert(ctx context.Context, sess session.Session, patchID string) (store.Committed, error) {
	return s.logPatches(ctx, sess, "revert", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		return s.store.Revert(ctx, key, patchID, on, strings.HasPrefix(patchID, compaction.InterruptedPrefix))
	})
}

// Rewind restores the session as it was before an invocation. It hides the first event of the invocation and all
// later events, and undoes their state changes. The audit log keeps the events. The shared scopes of the app and the
// user do not change. All patches of a rewind are logged in one durable commit. To undo the rewind, pass the id of
// one of these patches to [Service.Revert]. Afterwards sess shows the new view.
//
// The error matches [store.ErrConflict] if another patch was logged after the view that sess shows. Other errors are
// as for [store.Store.Rewind].
func (s *Service) Rewind(ctx context.Context, sess session.Session, invocationID string) (store.Committed, error) {
	return s.logPatches(ctx, sess, "rewind", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		return s.store.Rewind(ctx, key, invocationID, on)
	})
}

// ForkOptions are options of [Service.Fork]. The zero value copies the whole log to a session with a generated id.
type ForkOptions struct {
	// SessionID is the id of the new session. If it is "", Fork generates an id.
	SessionID string

	// At, if not nil, is the seq of the last record to copy.
	At *uint64

	// BeforeInvocation, if not "", is the id of an invocation. Fork copies the records before the invocation's first
	// event.
	BeforeInvocation string
}

// Fork creates a session of the same user with the initial state and the log of sess, as [store.Store.Fork] does.
// After Fork, changes of one session do not affect the other. Fork fails with [store.ErrExists] if the new session
// exists.
//
// Over a wrapped service, Fork copies the events one by one, without their "app:" and "user:" keys. If At is between
// patches that one call logged, Fork copies none of these patches.
func (s *Service) Fork(ctx context.Context, sess session.Session, opts ForkOptions) (*Session, error) {
	handle, err := s.currentHandle(ctx, sess)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	if opts.BeforeInvocation != "" {
		if opts.At != nil {
			return nil, &patch.FieldError{Field: "ForkOptions.BeforeInvocation", Problem: "At is also set; set only one of the two"}
		}
		if opts.At, err = s.seqBefore(ctx, handle, opts.BeforeInvocation); err != nil {
			return nil, fmt.Errorf("fork: %w", err)
		}
	}
	to := handle.key
	to.Session = cmp.Or(opts.SessionID, platform.NewUUID(ctx))
	forked, err := s.store.Fork(ctx, handle.key, to, store.ForkOptions{At: opts.At})
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	return s.open(forked), nil
}

// seqBefore returns the seq of the record before the first event of an invocation.
func (s *Service) seqBefore(ctx context.Context, handle *Session, invocation string) (*uint64, error) {
	for r, err := range s.store.RawEvents(ctx, handle.key, 1) {
		if err != nil {
			return nil, err
		}
		if r.Event != nil && r.Event.InvocationID() == invocation {
			seq := r.Seq - 1
			return &seq, nil
		}
	}
	return nil, fmt.Errorf("session %s: %w: no event belongs to invocation %q", handle.key, fold.ErrEventNotFound, invocation)
}

// Erase erases the content of events, and of everything that was derived from them, as [store.Store.Erase] does. An
// erase cannot be undone. Afterwards sess shows the new view. Other Session values of the same session still show the
// erased content. To replace them, call Get. A wrapped service cannot erase content. With a wrapped service, the
// error matches [errors.ErrUnsupported].
func (s *Service) Erase(ctx context.Context, sess session.Session, selection store.EraseSelection, opts store.EraseOptions) (store.Erasure, error) {
	handle, err := s.currentHandle(ctx, sess)
	if err != nil {
		return store.Erasure{}, fmt.Errorf("erase: %w", err)
	}
	erased, err := s.store.Erase(ctx, handle.key, selection, opts)
	if err != nil {
		return erased, fmt.Errorf("erase: %w", err)
	}
	v, err := s.store.View(ctx, handle.key)
	if err == nil {
		handle.advance(v)
	}
	return erased, err
}

// ListPageRequest selects the sessions that [Service.ListPage] returns.
type ListPageRequest struct {
	AppName   string
	UserID    string // "" selects all users
	PageSize  int    // maximum number of sessions; 0 means 100
	PageToken string // NextPageToken of the previous response; "" selects the first page
}

// ListPageResponse is one page of sessions.
type ListPageResponse struct {
	Sessions      []store.Info
	NextPageToken string // "" if this is the last page
}

// ListPage lists sessions page by page, ordered by user id and session id. Unlike [Service.List], it reads no events
// and returns no state. ListPage leaves out sessions that cannot be read, and logs a warning for each.
func (s *Service) ListPage(ctx context.Context, req *ListPageRequest) (*ListPageResponse, error) {
	switch {
	case req == nil:
		return nil, errNoRequest
	case req.AppName == "" || req.PageSize < 0:
		return nil, fmt.Errorf("%w: list page: AppName must be set and PageSize must not be negative, got AppName %q and PageSize %d", patch.ErrInvalid, req.AppName, req.PageSize)
	}
	var after store.Key
	if req.PageToken != "" {
		var err error
		if after, err = store.ParseKey(req.PageToken); err != nil {
			return nil, fmt.Errorf("list page: page token: %w", err)
		}
	}
	size, out := cmp.Or(req.PageSize, 100), &ListPageResponse{}
	for info, err := range s.store.List(ctx, store.ListOptions{App: req.AppName, User: req.UserID, After: after}) {
		switch {
		case errors.Is(err, store.ErrCorrupt):
			s.logger.Warn("patchlog: a listing leaves out a damaged session", "session", info.Key.String(), "error", err)
		case err != nil:
			return nil, fmt.Errorf("list page: %w", err)
		case len(out.Sessions) == size:
			out.NextPageToken = out.Sessions[size-1].Key.String()
			return out, nil
		default:
			out.Sessions = append(out.Sessions, info)
		}
	}
	return out, nil
}
