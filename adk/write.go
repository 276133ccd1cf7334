package adk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/adk/internal/wrap"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// AppendEvent appends an event to the end of the session's log. When AppendEvent returns no error, the event is
// durable, and the session shows the event, its state changes, and all events that were logged meanwhile. temp: keys go
// to the session's overlay and are not logged. A partial event is accepted and ignored. An event without an id gets the
// id under which it is logged, even if the outcome is unknown. If compaction is on, the session may be compacted before
// AppendEvent returns; a failure of the compaction is no error of AppendEvent.
//
// The session shows a tool's long result shortened, as [Options.MaxResultTokens] says; the log has the whole result.
//
// If an event answers a call that a summary hides, AppendEvent makes the call visible again (see
// [Service.RestoreCalls]).
//
// If a message begins an invocation, AppendEvent answers the open calls of interrupted invocations (see
// [Options.KeepInterruptedCalls]).
//
// While a workflow node runs, the session's list of events only grows, since the node relies on indices into it.
// Patches logged meanwhile show after the first event that is not from a node, or after the next Get.
//
// sess must be a [Session] of a Service. If the session was deleted since, even if it was created again, the error
// matches [store.ErrNotFound]. Other errors are as for [store.Store.AppendEvents] and [NewEvent]. Retrying with the
// same event is safe.
func (s *Service) AppendEvent(ctx context.Context, sess session.Session, e *session.Event) error {
	switch {
	case sess == nil:
		return errNoSession
	case e == nil:
		return withMessage(patch.ErrInvalid, "event is nil")
	case e.Partial:
		return nil
	}
	handle, err := handleOf(sess)
	if err != nil {
		return err
	}
	run, err := s.runs.enter(ctx, handle, e)
	if err != nil {
		return appendError(err, e)
	}
	s.closeInterrupted(ctx, handle, e)
	first, err := s.append(ctx, handle, run, e)
	if err != nil {
		return appendError(err, e)
	}
	s.compacting.afterAppend(ctx, handle, e, first)
	if e.Author != userAuthor && isFinal(e) && !s.runs.isWatched(handle.key, e.InvocationID) {
		s.runs.end(ctx, handle.key, e.InvocationID, true)
		s.compacting.notify(handle.key)
	}
	return nil
}

// isFinal reports whether an event is its agent's final response. ADK's own method panics on a part that is nil.
func isFinal(e *session.Event) bool {
	return (e.Content == nil || !slices.Contains(e.Content.Parts, nil)) && e.IsFinalResponse()
}

// append reports whether the event was the first that was appended through the session.
func (s *Service) append(ctx context.Context, handle *Session, run *run, e *session.Event) (first bool, err error) {
	ctx, op := s.telemetry.start(ctx, opAppend, handle.key)
	defer func() { op.end(ctx, err) }()
	lasting := *e
	lasting.Actions.StateDelta = withoutTemp(e.Actions.StateDelta)
	event, mended, err := convert.Event(&lasting)
	if err != nil {
		return false, err
	}
	in := turn{handle.key, e.InvocationID}
	if _, warned := s.mended.Get(in); mended && !warned {
		s.mended.Put(in, true, 1)
		s.logger.Warn(convert.BadText, "session", handle.key.String(), "event", e.ID, "invocation", e.InvocationID)
	}
	if hasResponse(e) {
		if err := s.makeRoom(ctx, handle, event); err != nil {
			return false, err
		}
	}
	opts := store.AppendOptions{Creation: handle.View().Creation(), Follow: s.shorten}
	done, err := s.runs.append(ctx, handle.key, run, opts, func(opts store.AppendOptions) (store.Committed, error) {
		return s.store.Append(ctx, handle.key, opts, event, &lasting)
	})
	if e.ID == "" && len(done.Records) > 0 {
		e.ID = done.Records[0].ID()
	}
	if err != nil {
		return false, err
	}
	first = handle.appended(done, e, event, s.sharedAfter(ctx, handle, event))
	op.logged(ctx, done.Records)
	return first, nil
}

// makeRoom brings back hidden calls that an event answers, and withdraws recorded answers that the event replaces. The
// handle may be older than both: while a long-running tool worked, others may have written to the session.
func (s *Service) makeRoom(ctx context.Context, handle *Session, answer *patch.Event) error {
	v, err := s.newest(ctx, handle)
	if err != nil {
		return err
	}
	// If a summary by hand leaves no room for the call, log the answer anyway.
	if err := s.restoreCalls(ctx, handle, v, answer); err != nil && !errors.Is(err, fold.ErrOrphanedCall) {
		return err
	}
	return s.withdrawInterrupted(ctx, handle, v, answer)
}

// sharedAfter returns the shared scopes after an event that changes them, or nil if it changes none. After a retry,
// another session may have changed them since.
func (s *Service) sharedAfter(ctx context.Context, handle *Session, e *patch.Event) map[string]patch.Value {
	for range e.SharedChanges() {
		found, err := s.store.Get(context.WithoutCancel(ctx), handle.key, storage.Newest)
		if err != nil {
			s.logger.WarnContext(ctx, "patchlog: a session shows the shared state of before its append", "session", handle.key.String(), "error", err)
			return nil
		}
		return found.Shared
	}
	return nil
}

// ApplyPatch logs patches made from the session's view, all of them or none. A patch without a base gets the view's
// base, so it is refused as a conflict if another patch was logged since. ApplyPatch sets opts.On to the session's
// view. When it returns no error, the patches are durable and the session shows the new view. After a refusal nothing
// was written and the session is unchanged; Get returns the newest view. Errors are as for [store.Store.ApplyPatch].
// The error matches [patch.ErrInvalid] if the session shows its history ([WithHistory]), whose indices differ from the
// view's.
func (s *Service) ApplyPatch(ctx context.Context, sess session.Session, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error) {
	return s.patching(ctx, sess, "apply patch", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		if err := refuseHistory(sess); err != nil {
			return store.Committed{}, err
		}
		opts.On = on
		return s.store.ApplyPatch(ctx, key, patches, opts)
	})
}

// patching logs patches made from the session's view, and moves the session to the view after them.
func (s *Service) patching(ctx context.Context, sess session.Session, doing string, log func(context.Context, store.Key, fold.View) (store.Committed, error)) (done store.Committed, err error) {
	handle, err := handleOf(sess)
	if err != nil {
		return done, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, op := s.telemetry.start(ctx, opPatch, handle.key)
	defer func() { op.end(ctx, err) }()
	if done, err = log(ctx, handle.key, handle.View()); err != nil {
		return done, fmt.Errorf("%s: %w", doing, err)
	}
	handle.advance(done.View)
	op.logged(ctx, done.Records)
	return done, nil
}

// Preview returns what [Service.ApplyPatch] would do. It writes nothing and does not change the session.
func (s *Service) Preview(ctx context.Context, sess session.Session, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Preview, error) {
	handle, err := handleOf(sess)
	if err == nil {
		err = refuseHistory(sess)
	}
	if err != nil {
		return store.Preview{}, fmt.Errorf("preview patch: %w", err)
	}
	opts.On = handle.View()
	preview, err := s.store.Preview(ctx, handle.key, patches, opts)
	if err != nil {
		return store.Preview{}, fmt.Errorf("preview patch: %w", err)
	}
	return preview, nil
}

// RawEvents yields the session's audit log from a seq on: every record, including patches and hidden events, as
// [store.Store.RawEvents] does. [SessionEvent] converts a record's event to an ADK event.
func (s *Service) RawEvents(ctx context.Context, sess session.Session, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		handle, err := s.current(ctx, sess)
		if err != nil {
			yield(patch.Record{}, fmt.Errorf("raw events: %w", err))
			return
		}
		for r, err := range s.store.RawEvents(ctx, handle.key, fromSeq) {
			if !yield(r, err) {
				return
			}
		}
	}
}

// current returns the session as this package's type, if it still exists.
func (s *Service) current(ctx context.Context, sess session.Session) (*Session, error) {
	handle, err := handleOf(sess)
	if err != nil {
		return nil, err
	}
	info, err := s.store.Info(ctx, handle.key)
	if err != nil {
		return nil, err
	}
	return handle, handle.sameCreation(info.Creation)
}

// ViewAt returns the session's view after the record with the given seq, as [store.Store.ViewAt] does.
func (s *Service) ViewAt(ctx context.Context, sess session.Session, seq uint64) (fold.View, error) {
	handle, err := handleOf(sess)
	if err != nil {
		return fold.View{}, fmt.Errorf("view at %d: %w", seq, err)
	}
	view, err := s.store.ViewAt(ctx, handle.key, seq)
	if err == nil {
		err = handle.sameCreation(view.Creation())
	}
	if err != nil {
		return fold.View{}, fmt.Errorf("view at %d: %w", seq, err)
	}
	return view, nil
}

func (s *Session) sameCreation(creation string) error {
	if !wrap.SameSession(s.View().Creation(), creation) {
		return fmt.Errorf("session %s: %w: it was created again since", s.key, store.ErrNotFound)
	}
	return nil
}

// handleOf returns the session as this package's type.
func handleOf(sess session.Session) (*Session, error) {
	s, own := sess.(*Session)
	switch {
	case sess == nil, own && s == nil:
		return nil, errNoSession
	case own:
		return s, nil
	}
	return nil, withMessage(patch.ErrInvalid, "unexpected session type %T for session ID %s", sess, sess.ID())
}

var errNoSession = withMessage(patch.ErrInvalid, "session is nil")
