package adk

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

const (
	// InterruptedKey is the key in the custom metadata of an event that answers calls of an interrupted
	// run; see [Options.KeepInterruptedCalls].
	InterruptedKey = "patchlog_interrupted"

	// interruptedPrefix begins the ids of the patches that log such events.
	interruptedPrefix = "interrupted-"

	interruptedAnswer = "interrupted: no result was recorded"

	// requestPrefix begins the names of the functions by which ADK asks the user.
	requestPrefix = "adk_request_"
)

// beginsInvocation reports whether the user's message begins an invocation, as far as the view shows.
func beginsInvocation(v fold.View, e *session.Event) bool {
	if e.Author != userAuthor || e.InvocationID == "" || e.Content == nil {
		return false
	}
	n := v.Len()
	return n > 0 && v.At(n-1).InvocationID() != e.InvocationID
}

// closeInterrupted answers the calls of interrupted invocations, if a message begins another one. If it fails, the run
// goes on without.
func (s *Service) closeInterrupted(ctx context.Context, handle *Session, message *session.Event) {
	if v := handle.View(); s.keepInterrupted || !beginsInvocation(v, message) || len(interruptedCalls(v)) == 0 {
		return
	}
	held := map[string]bool{} // by invocation
	isHeld := func(invocation string) bool {
		if _, known := held[invocation]; !known {
			held[invocation] = s.runs.isHeld(ctx, handle.key, invocation)
		}
		return held[invocation]
	}
	err := s.patchNewest(ctx, handle, store.PatchOptions{}, func(v fold.View) ([]*patch.PatchEvent, error) {
		var open []fold.Call
		for _, c := range interruptedCalls(v) {
			if id := v.At(c.Index).InvocationID(); id != message.InvocationID && !answers(message, c) && !isHeld(id) {
				open = append(open, c)
			}
		}
		return closingPatches(v, open)
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

// interruptedCalls returns the visible calls without a response that neither the user's side answers, nor the end of a
// task: they are neither long-running nor requests to the user, nor is the user asked about them.
func interruptedCalls(v fold.View) (open []fold.Call) {
	tasks, asked := map[string]bool{}, []string{}
	calls := v.Calls()
	for _, c := range calls {
		isOpen := len(c.Responses) == 0
		if strings.HasPrefix(c.Name, requestPrefix) {
			if isOpen {
				content := v.At(c.Index).Content()
				asked = append(asked, content.String())
			}
			continue
		}
		e := v.At(c.Index)
		if _, asks := e.Field("requestedInput"); isOpen && !asks && !slices.Contains(e.LongRunningToolIDs(), c.ID) {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	for _, e := range v.Events() {
		tasks[e.IsolationScope()] = true
	}
	return slices.DeleteFunc(open, func(c fold.Call) bool {
		return c.ID != "" && (tasks[c.ID] || slices.ContainsFunc(asked, func(request string) bool { return strings.Contains(request, strconv.Quote(c.ID)) }))
	})
}

// closingPatches returns the patches, the last of the log first, that put an answer behind each event with calls. They
// are a group.
func closingPatches(v fold.View, calls []fold.Call) (patches []*patch.PatchEvent, err error) {
	for i := len(calls) - 1; i >= 0; {
		at := calls[i].Index
		var parts []any
		for ; i >= 0 && calls[i].Index == at; i-- {
			response := map[string]any{"name": calls[i].Name, "response": map[string]any{"error": interruptedAnswer}}
			if calls[i].ID != "" {
				response["id"] = calls[i].ID
			}
			parts = append([]any{map[string]any{"functionResponse": response}}, parts...)
		}
		of := v.At(at)
		fields := patch.Fields{
			ID: uuid.NewString(), InvocationID: of.InvocationID(), Author: of.Author(), Branch: of.Branch(), IsolationScope: of.IsolationScope(),
			Timestamp: of.Timestamp(), ZeroTime: true,
			Content: map[string]any{"role": "user", "parts": parts}, CustomMetadata: map[string]any{InterruptedKey: true},
		}
		if node, ok := of.Field("nodeInfo"); ok {
			fields.Extra = map[string]any{"nodeInfo": node}
		}
		answer, err := patch.NewEvent(fields)
		if err != nil {
			return nil, err
		}
		patches = append(patches, patch.NewSplice(at+1, 0, answer).WithID(interruptedPrefix+uuid.NewString()))
	}
	return asGroup(patches, "patchlog"), nil
}

// withdrawInterrupted takes answers of interrupted calls out of sight, if an event has the late answers.
func (s *Service) withdrawInterrupted(ctx context.Context, handle *Session, late *patch.Event) error {
	answered := map[patch.FunctionPart]bool{}
	for p := range late.FunctionParts() {
		if p.Index = 0; p.Response {
			answered[p] = true
		}
	}
	isLate := func(p patch.FunctionPart) bool { p.Index = 0; return answered[p] }
	if len(answered) == 0 {
		return nil
	}
	withdraw := func(v fold.View) (patches []*patch.PatchEvent, err error) {
		for i := v.Len() - 1; i >= 0; i-- {
			e := v.At(i)
			parts := slices.Collect(e.FunctionParts())
			if !slices.ContainsFunc(parts, isLate) || !isInterrupted(e) {
				continue
			}
			var left []*patch.Event
			if slices.ContainsFunc(parts, func(p patch.FunctionPart) bool { return !isLate(p) }) {
				rest, err := withoutParts(e, func(i int) bool {
					return slices.ContainsFunc(parts, func(p patch.FunctionPart) bool { return p.Index == i && isLate(p) })
				})
				if err != nil {
					return nil, err
				}
				left = append(left, rest)
			}
			patches = append(patches, patch.NewSplice(i, 1, left...).WithState(patch.Keep))
		}
		return asGroup(patches, "patchlog"), nil
	}
	if patches, err := withdraw(handle.View()); err != nil || len(patches) == 0 {
		return err
	}
	return s.patchNewest(ctx, handle, store.PatchOptions{AllowOrphans: true, AllowPinned: true}, withdraw)
}

// isInterrupted reports whether an event is one of [closingPatches].
func isInterrupted(e *patch.Event) bool {
	var metadata map[string]any
	return e.Decode("customMetadata", &metadata) == nil && metadata[InterruptedKey] == true
}

// withoutParts returns a copy of an event, with an id of its own, without some parts of its content.
func withoutParts(e *patch.Event, drop func(i int) bool) (*patch.Event, error) {
	as, err := SessionEvent(e)
	if err != nil {
		return nil, err
	}
	var parts []*genai.Part
	for i, p := range as.Content.Parts {
		if !drop(i) {
			parts = append(parts, p)
		}
	}
	as.ID, as.Content.Parts = uuid.NewString(), parts
	return NewEvent(as)
}

// patchNewest logs the patches that plan makes of the session's newest view, and moves the session to the view that
// they give. If another patch comes first, plan is asked again.
func (s *Service) patchNewest(ctx context.Context, handle *Session, opts store.PatchOptions, plan func(fold.View) ([]*patch.PatchEvent, error)) error {
	for {
		v, err := s.store.View(ctx, handle.key)
		if err == nil {
			err = handle.sameCreation(v.Creation())
		}
		if err != nil {
			return err
		}
		patches, err := plan(v)
		if err != nil || len(patches) == 0 {
			return err
		}
		opts.On = v
		done, err := s.store.ApplyNewest(ctx, handle.key, patches, opts)
		switch {
		case errors.Is(err, fold.ErrConflict):
			continue // another patch was logged meanwhile
		case errors.Is(err, fold.ErrUnknownPatch):
			return nil // the log takes no patches, but it takes events
		case err != nil:
			return err
		}
		handle.showRestored(done)
		return nil
	}
}

// isHeld reports whether a run is known to be under way: the plugin watches it, or another process has its lease.
func (r *runs) isHeld(ctx context.Context, key store.Key, invocation string) bool {
	if r == nil || invocation == "" {
		return false
	}
	return r.isWatched(key, invocation) || r.compacts && !r.lease(ctx, key, runLease+invocation, -1)
}
