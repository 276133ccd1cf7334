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

// Revert undoes a patch and all patches of its group, as [store.Store.Revert] does; a summary by compaction is such a
// patch. The events that it hid are visible again, and their state changes apply again. Afterwards sess shows the new
// view. The patch's id is in [store.Committed] and in [Service.RawEvents]. A revert is a patch with its own id and can
// be reverted. After a refusal nothing was written; errors are as for [store.Store.Revert].
func (s *Service) Revert(ctx context.Context, sess session.Session, patchID string) (store.Committed, error) {
	return s.patching(ctx, sess, "revert", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		return s.store.Revert(ctx, key, patchID, on, strings.HasPrefix(patchID, compaction.InterruptedPrefix))
	})
}

// Rewind restores the session as it was before an invocation: it hides the events from the invocation's first event on,
// and their state changes; the audit log keeps them. A rewind is one durable commit or none, and [Service.Revert]
// undoes all of it. Shared scopes stay as they are. Afterwards sess shows the new view. Errors are as for
// [store.Store.Rewind]. The error matches [store.ErrConflict] if a patch was logged after the session's view.
func (s *Service) Rewind(ctx context.Context, sess session.Session, invocationID string) (store.Committed, error) {
	return s.patching(ctx, sess, "rewind", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		return s.store.Rewind(ctx, key, invocationID, on)
	})
}

// ForkOptions are options of [Service.Fork]. The zero value copies the whole log, under a new id.
type ForkOptions struct {
	// SessionID is the new session's id; "" means a new one.
	SessionID string

	// At, if not nil, is the seq of the last record that the new session has.
	At *uint64

	// BeforeInvocation, if not "", ends the new session before the first event of an invocation.
	BeforeInvocation string
}

// Fork creates a session of the same user with the initial state and the log of sess, as [store.Store.Fork] does. After
// that the two are independent. Over a wrapped service it copies the events one by one, without their app: and user:
// keys; if At is within the patches of one call, none of these is copied. It fails with [store.ErrExists] if the new
// session exists.
func (s *Service) Fork(ctx context.Context, sess session.Session, opts ForkOptions) (*Session, error) {
	handle, err := s.current(ctx, sess)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	if opts.BeforeInvocation != "" {
		if opts.At != nil {
			return nil, &patch.FieldError{Field: "ForkOptions.BeforeInvocation", Problem: "At is set too; set one of them"}
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

// seqBefore returns the seq before the first event of an invocation.
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

// Erase erases events and what was made from them, as [store.Store.Erase] does. It cannot be undone. Afterwards sess
// shows the new view; get other Session values of the same session again. Over a wrapped service, which cannot change
// its events, the error matches [errors.ErrUnsupported].
func (s *Service) Erase(ctx context.Context, sess session.Session, selection store.EraseSelection, opts store.EraseOptions) (store.Erasure, error) {
	handle, err := s.current(ctx, sess)
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

// ListPageRequest says which sessions to list.
type ListPageRequest struct {
	AppName   string
	UserID    string // "" means all users
	PageSize  int    // 0 means 100
	PageToken string // the previous response's NextPageToken; "" means the first page
}

// ListPageResponse is a page of a listing.
type ListPageResponse struct {
	Sessions      []store.Info
	NextPageToken string // "" if this is the last page
}

// ListPage lists sessions page by page, in the order of user and session ids. Unlike [Service.List] it returns no state
// and reads no events. Sessions that cannot be read are left out, with a warning to the logger.
func (s *Service) ListPage(ctx context.Context, req *ListPageRequest) (*ListPageResponse, error) {
	switch {
	case req == nil:
		return nil, errNoRequest
	case req.AppName == "" || req.PageSize < 0:
		return nil, fmt.Errorf("%w: list page: app name %q, page size %d", patch.ErrInvalid, req.AppName, req.PageSize)
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
			s.logger.Warn("patchlog: a damaged session is left out of a listing", "session", info.Key.String(), "error", err)
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
