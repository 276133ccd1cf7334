package adk

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// answerInterruptedCalls answers the open calls of interrupted invocations if the user's message begins a new
// invocation. It reads the newest view, because the message may have waited for the run that made the calls. It logs
// an error and does not return it, so that the run continues.
func (s *Service) answerInterruptedCalls(ctx context.Context, handle *Session, message *session.Event) {
	if s.keepInterruptedCalls || message.Author != userAuthor || message.InvocationID == "" || message.Content == nil {
		return
	}
	v, err := s.recentView(ctx, handle)
	if n := v.Len(); err != nil || n == 0 || v.At(n-1).InvocationID() == message.InvocationID {
		return // the append will report the error of recentView
	}
	active := map[string]bool{} // results of isActive, by invocation id
	err = s.patchNewest(ctx, handle, v, store.PatchOptions{}, func(v fold.View) ([]*patch.PatchEvent, error) {
		return compaction.CloseCalls(v, uuid.NewString, func(c fold.Call) bool {
			invocation := v.At(c.Index).InvocationID()
			if _, known := active[invocation]; !known {
				active[invocation] = invocation == message.InvocationID || s.runs.isActive(ctx, handle.key, invocation)
			}
			return active[invocation] || answersCall(message, c)
		})
	})
	if err != nil {
		s.logger.WarnContext(ctx, "patchlog: cannot answer the open calls of an interrupted run", "session", handle.key.String(), "error", err)
	}
}

func answersCall(e *session.Event, c fold.Call) bool {
	return slices.ContainsFunc(e.Content.Parts, func(p *genai.Part) bool {
		return p != nil && p.FunctionResponse != nil && p.FunctionResponse.ID == c.ID && p.FunctionResponse.Name == c.Name
	})
}

// hideInterruptedAnswers hides the recorded answers of interrupted calls in a view, if the late event answers the
// same calls.
func (s *Service) hideInterruptedAnswers(ctx context.Context, handle *Session, v fold.View, late *patch.Event) error {
	return s.patchNewest(ctx, handle, v, store.PatchOptions{AllowOrphans: true, AllowPinned: true}, func(v fold.View) ([]*patch.PatchEvent, error) {
		return compaction.ReopenCalls(v, late)
	})
}

// recentView returns the newest view of a handle's session that is available without a request to a wrapped service.
func (s *Service) recentView(ctx context.Context, handle *Session) (fold.View, error) {
	v, err := s.store.RecentView(ctx, handle.key)
	if err == nil {
		err = handle.checkCreation(v.Creation())
	}
	return v, err
}

// patchNewest logs the patches that plan returns for v, and moves the session to the resulting view. v is the
// newest view that the caller has. If another patch was logged first, patchNewest calls plan again with a newer
// view.
func (s *Service) patchNewest(ctx context.Context, handle *Session, v fold.View, opts store.PatchOptions, plan func(fold.View) ([]*patch.PatchEvent, error)) error {
	for {
		patches, err := plan(v)
		if err != nil || len(patches) == 0 {
			return err
		}
		opts.On = v
		done, err := s.store.ApplyToRecentView(ctx, handle.key, patches, opts)
		switch {
		case errors.Is(err, fold.ErrConflict): // another patch was logged first
			if v, err = s.recentView(ctx, handle); err != nil {
				return err
			}
			continue
		case errors.Is(err, fold.ErrUnknownPatch):
			return nil // the log accepts events, but no patches
		case err != nil:
			return err
		}
		handle.showRestored(done)
		return nil
	}
}

// isActive reports whether a run is known to be active. This is so if the plugin watches the run, or if another
// process holds the run's lease.
func (r *runs) isActive(ctx context.Context, key store.Key, invocation string) bool {
	if r == nil || invocation == "" {
		return false
	}
	return r.isWatched(key, invocation) || r.compactionEnabled && !r.isLeaseFree(ctx, key, compaction.RunLease(invocation))
}
