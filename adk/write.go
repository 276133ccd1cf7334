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

// AppendEvent appends an event to the end of the session's log. When AppendEvent returns nil, the event is durable. The
// session then shows the event, its state changes, and all events that other writers logged before it.
//
// The event's "temp:" keys go to the session's overlay and are not logged. A partial event is accepted and ignored. If
// the event has no id, AppendEvent sets the id under which the event is logged, even if the outcome of the write is
// unknown.
//
// AppendEvent has these further effects:
//
//   - If the event contains a long tool result, the session shows the result in shortened form, and the log keeps the
//     whole result. See [Options.MaxResultTokens].
//   - If the event answers a call that a summary hides, AppendEvent makes the call visible again. See
//     [Service.RestoreCalls].
//   - If the event is a user's message that begins an invocation, AppendEvent answers the open calls of interrupted
//     invocations. See [Options.KeepInterruptedCalls].
//   - If compaction is on, AppendEvent may compact the session before it returns. AppendEvent does not return the errors
//     of the compaction.
//
// While a workflow node runs, the session's list of events only grows, because the node relies on indices into the
// list. The effects of patches that are logged in the meantime become visible when an event that is not from a node is
// appended, or at the next Get.
//
// The argument sess must be a [Session] of a Service. If the session was deleted, the error matches
// [store.ErrNotFound], even if a session with the same id was created later. Other errors are as for
// [store.Store.AppendEvents] and [NewEvent]. Retrying with the same event is safe.
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
	s.answerInterruptedCalls(ctx, handle, e)
	first, err := s.append(ctx, handle, run, e)
	if err != nil {
		return appendError(err, e)
	}
	s.autoCompaction.afterAppend(ctx, handle, e, first)
	if e.Author != userAuthor && isFinal(e) && !s.runs.isWatched(handle.key, e.InvocationID) {
		s.runs.end(ctx, handle.key, e.InvocationID, true)
		s.autoCompaction.notify(handle.key)
	}
	return nil
}

// isFinal reports whether an event is its agent's final response. ADK's IsFinalResponse panics on a nil part.
func isFinal(e *session.Event) bool {
	return (e.Content == nil || !slices.Contains(e.Content.Parts, nil)) && e.IsFinalResponse()
}

// append logs an event of a run. first reports whether the event was the first one appended through the session.
func (s *Service) append(ctx context.Context, handle *Session, run *run, e *session.Event) (first bool, err error) {
	ctx, op := s.telemetry.start(ctx, opAppend, handle.key)
	defer func() { op.end(ctx, err) }()
	persistent := *e
	persistent.Actions.StateDelta = withoutTemp(e.Actions.StateDelta)
	event, repaired, err := convert.Event(&persistent)
	if err != nil {
		return false, err
	}
	in := turn{handle.key, e.InvocationID}
	if _, warned := s.warnedInvalidUTF8.Get(in); repaired && !warned {
		s.warnedInvalidUTF8.Put(in, true, 1)
		s.logger.Warn(convert.InvalidUTF8Warning, "session", handle.key.String(), "event", e.ID, "invocation", e.InvocationID)
	}
	if hasResponse(e) {
		if err := s.prepareForResponses(ctx, handle, event); err != nil {
			return false, err
		}
	}
	opts := store.AppendOptions{Creation: handle.View().Creation(), Follow: s.shorten}
	done, err := s.runs.append(ctx, handle.key, run, opts, func(opts store.AppendOptions) (store.Committed, error) {
		return s.store.Append(ctx, handle.key, opts, event, &persistent)
	})
	if e.ID == "" && len(done.Records) > 0 {
		e.ID = done.Records[0].ID()
	}
	if err != nil {
		return false, err
	}
	first = handle.showAppended(done, e, event, s.sharedAfter(ctx, handle, event))
	op.recordLogged(ctx, done.Records)
	return first, nil
}

// prepareForResponses prepares the log for an event with function responses. It makes the answered calls visible again.
// It also hides the recorded answers of interrupted calls, which the event replaces. It uses the newest view, because
// other writers may have written to the session while a long-running tool worked.
func (s *Service) prepareForResponses(ctx context.Context, handle *Session, answer *patch.Event) error {
	v, err := s.recentView(ctx, handle)
	if err != nil {
		return err
	}
	// If a summary leaves no valid place for the call, as a summary written by a user can, log the answer without
	// the call.
	if err := s.restoreCalls(ctx, handle, v, answer); err != nil && !errors.Is(err, fold.ErrOrphanedCall) {
		return err
	}
	return s.hideInterruptedAnswers(ctx, handle, v, answer)
}

// sharedAfter returns the shared scopes after the append of an event, or nil if the event changes no shared key. It
// reads the scopes from the storage, because another session may have changed them before a retry.
func (s *Service) sharedAfter(ctx context.Context, handle *Session, e *patch.Event) map[string]patch.Value {
	for range e.SharedChanges() {
		found, err := s.store.Get(context.WithoutCancel(ctx), handle.key, storage.NewestEvents)
		if err != nil {
			s.logger.WarnContext(ctx, "patchlog: cannot read the app: and user: state after an append; the session shows the earlier values", "session", handle.key.String(), "error", err)
			return nil
		}
		return found.Shared
	}
	return nil
}

// ApplyPatch logs patches that were made from the session's view. It logs all of them or none. ApplyPatch sets
// opts.On to the session's view. A patch without a base gets the base of this view. If another patch was logged after
// the view, ApplyPatch refuses such a patch with a conflict.
//
// When ApplyPatch returns nil, the patches are durable and the session shows the new view. If ApplyPatch refuses the
// patches, it writes nothing and the session does not change. Call Get for the newest view.
//
// Errors are as for [store.Store.ApplyPatch]. The error also matches [patch.ErrInvalid] if the session shows its
// history ([WithHistory]), because indices into a history are not indices into the view.
func (s *Service) ApplyPatch(ctx context.Context, sess session.Session, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error) {
	return s.logPatches(ctx, sess, "apply patch", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		if err := refuseHistory(sess); err != nil {
			return store.Committed{}, err
		}
		opts.On = on
		return s.store.ApplyPatch(ctx, key, patches, opts)
	})
}

// logPatches calls write with the session's view, and moves the session to the view after the logged patches.
func (s *Service) logPatches(ctx context.Context, sess session.Session, opName string, write func(context.Context, store.Key, fold.View) (store.Committed, error)) (done store.Committed, err error) {
	handle, err := handleOf(sess)
	if err != nil {
		return done, fmt.Errorf("%s: %w", opName, err)
	}
	ctx, op := s.telemetry.start(ctx, opPatch, handle.key)
	defer func() { op.end(ctx, err) }()
	if done, err = write(ctx, handle.key, handle.View()); err != nil {
		return done, fmt.Errorf("%s: %w", opName, err)
	}
	handle.advance(done.View)
	op.recordLogged(ctx, done.Records)
	return done, nil
}

// Preview returns the result that [Service.ApplyPatch] would have. It writes nothing and leaves the session
// unchanged.
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

// RawEvents yields the records of the session's audit log from fromSeq on, as [store.Store.RawEvents] does. The
// records include patches and hidden events. [SessionEvent] converts a record's event to an ADK event.
func (s *Service) RawEvents(ctx context.Context, sess session.Session, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		handle, err := s.currentHandle(ctx, sess)
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

// currentHandle returns sess as a *Session. It fails if the session was deleted, even if a session with the
// same id was created later.
func (s *Service) currentHandle(ctx context.Context, sess session.Session) (*Session, error) {
	handle, err := handleOf(sess)
	if err != nil {
		return nil, err
	}
	info, err := s.store.Info(ctx, handle.key)
	if err != nil {
		return nil, err
	}
	return handle, handle.checkCreation(info.Creation)
}

// ViewAt returns the session's view after the record with the given seq, as [store.Store.ViewAt] does.
func (s *Service) ViewAt(ctx context.Context, sess session.Session, seq uint64) (fold.View, error) {
	handle, err := handleOf(sess)
	if err != nil {
		return fold.View{}, fmt.Errorf("view at %d: %w", seq, err)
	}
	view, err := s.store.ViewAt(ctx, handle.key, seq)
	if err == nil {
		err = handle.checkCreation(view.Creation())
	}
	if err != nil {
		return fold.View{}, fmt.Errorf("view at %d: %w", seq, err)
	}
	return view, nil
}

func (s *Session) checkCreation(creation string) error {
	if !wrap.SameSession(s.View().Creation(), creation) {
		return fmt.Errorf("session %s: %w: the session was deleted and created again; get it again", s.key, store.ErrNotFound)
	}
	return nil
}

func handleOf(sess session.Session) (*Session, error) {
	s, isHandle := sess.(*Session)
	switch {
	case sess == nil, isHandle && s == nil:
		return nil, errNoSession
	case isHandle:
		return s, nil
	}
	return nil, withMessage(patch.ErrInvalid, "unexpected session type %T for session ID %s", sess, sess.ID())
}

var errNoSession = withMessage(patch.ErrInvalid, "session is nil")
