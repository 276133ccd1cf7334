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

// AppendEvent appends an event to the end of the session's log. When it has returned
// without error the event is durable, and the session shows it, its state changes, and
// whatever others logged meanwhile. temp: keys go to the session's overlay and are not
// logged. A partial event is accepted and does nothing. If the event has no id, it is
// given the one that it was logged under, also if the outcome is unknown. Where compaction
// is on, the session may be compacted before AppendEvent returns (see the package's
// documentation); what goes wrong then is no error of AppendEvent.
//
// Where compaction is on, or [Options.MaxResultTokens] says so, the session shows a long result
// of a tool in short; the log has it whole.
//
// An event that answers a call which a summary hides brings the call back into sight, just
// before itself (see [Service.RestoreCalls]).
//
// A message that begins an invocation has the calls of interrupted ones answered ([Options.KeepInterruptedCalls]).
//
// While a node of a workflow appends, which has its place in the list of events, that list
// only grows: patches that others logged show after the first event that is none of a
// node's, or when the session is got again.
//
// The session must be one that a [Service] gave; if it was deleted since, or deleted and
// created again, the error matches [store.ErrNotFound]. Other errors are as for
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

// makeRoom brings back the calls that an event answers, if they are not in sight, and withdraws what was recorded in the place
// of its answers. The handle may be older than both: a tool that takes long answers to a session in which others go on.
func (s *Service) makeRoom(ctx context.Context, handle *Session, answer *patch.Event) error {
	v, err := s.newest(ctx, handle)
	if err != nil {
		return err
	}
	// Where a summary by hand leaves no room for the call, the answer is logged all the same.
	if err := s.restoreCalls(ctx, handle, v, answer); err != nil && !errors.Is(err, fold.ErrOrphanedCall) {
		return err
	}
	return s.withdrawInterrupted(ctx, handle, v, answer)
}

// sharedAfter returns the scopes that sessions share as they are after an event that changes them, or nil if it
// does not: if the append was a retry, another session may have changed them since.
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

// ApplyPatch logs patches made from the session's view, all of them or none. A patch without a base gets that
// view's, so that it is refused as a conflict if another was logged since. The options' On is the session's view.
// When it has returned without error the patches are durable and the session stands at the view that they
// give. After a refusal the session stands where it stood, and nothing was written; get
// the session again to look again. Errors are as for [store.Store.ApplyPatch]; one matches
// [patch.ErrInvalid] if the session shows its history ([WithHistory]), whose indices are not
// the view's.
func (s *Service) ApplyPatch(ctx context.Context, sess session.Session, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error) {
	return s.patching(ctx, sess, "apply patch", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		if err := refuseHistory(sess); err != nil {
			return store.Committed{}, err
		}
		opts.On = on
		return s.store.ApplyPatch(ctx, key, patches, opts)
	})
}

// patching logs patches made from the session's view, and moves the session to the view
// that they give.
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

// Preview returns what [Service.ApplyPatch] would do, and writes nothing. The session
// stands where it stood.
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

// RawEvents yields the session's audit log from a seq on: every record, patches and what
// they hide included. It is as [store.Store.RawEvents]. [SessionEvent] gives a record's
// event as ADK knows it.
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

// current returns the session as one of this package's, if it is still there.
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

// ViewAt returns the session's view as it stood after the record with the given seq. It is
// as [store.Store.ViewAt].
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

// handleOf returns the session as one of this package's.
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
