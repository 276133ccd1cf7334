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

// closeInterrupted answers the open calls of interrupted invocations if a message of the user begins a new
// invocation. It reads the newest view, because the message may have waited for the run that made the calls. An error
// is only logged, so the run continues.
func (s *Service) closeInterrupted(ctx context.Context, handle *Session, message *session.Event) {
	if s.keepInterrupted || message.Author != userAuthor || message.InvocationID == "" || message.Content == nil {
		return
	}
	v, err := s.newest(ctx, handle)
	if n := v.Len(); err != nil || n == 0 || v.At(n-1).InvocationID() == message.InvocationID {
		return // if newest failed, the append reports the error
	}
	held := map[string]bool{} // results of isHeld, by invocation
	err = s.patchNewest(ctx, handle, v, store.PatchOptions{}, func(v fold.View) ([]*patch.PatchEvent, error) {
		return compaction.CloseCalls(v, uuid.NewString, func(c fold.Call) bool {
			invocation := v.At(c.Index).InvocationID()
			if _, known := held[invocation]; !known {
				held[invocation] = invocation == message.InvocationID || s.runs.isHeld(ctx, handle.key, invocation)
			}
			return held[invocation] || answers(message, c)
		})
	})
	if err != nil {
		s.logger.WarnContext(ctx, "patchlog: calls of an interrupted run stay without an answer", "session", handle.key.String(), "error", err)
	}
}

func answers(e *session.Event, c fold.Call) bool {
	return slices.ContainsFunc(e.Content.Parts, func(p *genai.Part) bool {
		return p != nil && p.FunctionResponse != nil && p.FunctionResponse.ID == c.ID && p.FunctionResponse.Name == c.Name
	})
}

// withdrawInterrupted hides the recorded answers of interrupted calls in a view if the late event answers these
// calls.
func (s *Service) withdrawInterrupted(ctx context.Context, handle *Session, v fold.View, late *patch.Event) error {
	return s.patchNewest(ctx, handle, v, store.PatchOptions{AllowOrphans: true, AllowPinned: true}, func(v fold.View) ([]*patch.PatchEvent, error) {
		return compaction.ReopenCalls(v, late)
	})
}

// newest returns the newest view of a handle's session that is available without a request to a wrapped service.
func (s *Service) newest(ctx context.Context, handle *Session) (fold.View, error) {
	v, err := s.store.RecentView(ctx, handle.key)
	if err == nil {
		err = handle.sameCreation(v.Creation())
	}
	return v, err
}

// patchNewest logs the patches that plan returns for v, and moves the session to the view after them. v is the newest
// view that the caller knows. If another patch was logged first, patchNewest calls plan again with a newer view.
func (s *Service) patchNewest(ctx context.Context, handle *Session, v fold.View, opts store.PatchOptions, plan func(fold.View) ([]*patch.PatchEvent, error)) error {
	for {
		patches, err := plan(v)
		if err != nil || len(patches) == 0 {
			return err
		}
		opts.On = v
		done, err := s.store.ApplyNewest(ctx, handle.key, patches, opts)
		switch {
		case errors.Is(err, fold.ErrConflict): // another patch was logged first
			if v, err = s.newest(ctx, handle); err != nil {
				return err
			}
			continue
		case errors.Is(err, fold.ErrUnknownPatch):
			return nil // the log accepts no patches, but it accepts events
		case err != nil:
			return err
		}
		handle.showRestored(done)
		return nil
	}
}

// isHeld reports whether a run is known to be active, because the plugin watches it or another process holds its
// lease.
func (r *runs) isHeld(ctx context.Context, key store.Key, invocation string) bool {
	if r == nil || invocation == "" {
		return false
	}
	return r.isWatched(key, invocation) || r.compacts && !r.isFree(ctx, key, compaction.RunLease(invocation))
}
