package adk

import (
	"context"
	"fmt"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// If summaries hide the calls that msg answers, RestoreCalls makes these calls visible again, as
// [compaction.RestoreCalls] does. If sessions are compacted, call RestoreCalls before each Run whose message contains a
// function response. [Service.AppendEvent] also restores such calls, but too late for the runner. Before the runner
// appends the message, it searches for the call, which determines the agent that continues and the invocation to
// resume.
//
// Afterwards sess shows the new view. If no call must be restored, RestoreCalls writes nothing.
func (s *Service) RestoreCalls(ctx context.Context, sess session.Session, msg *genai.Content) error {
	handle, err := handleOf(sess)
	if err != nil {
		return fmt.Errorf("restore calls: %w", err)
	}
	if msg == nil {
		return nil
	}
	e, err := patch.NewEvent(patch.Fields{ID: "answer", Author: userAuthor, Content: msg})
	if err == nil {
		var v fold.View
		if v, err = s.recentView(ctx, handle); err == nil {
			err = s.restoreCalls(ctx, handle, v, e)
		}
	}
	if err != nil {
		return fmt.Errorf("restore calls: %w", err)
	}
	return nil
}

// restoreCalls makes the calls that e answers visible again, if v does not show them.
func (s *Service) restoreCalls(ctx context.Context, handle *Session, v fold.View, e *patch.Event) error {
	if hasVisibleCalls(v, e) {
		return nil
	}
	return s.patchNewest(ctx, handle, v, store.PatchOptions{}, func(v fold.View) ([]*patch.PatchEvent, error) {
		return compaction.RestoreCalls(ctx, tracedStorage{s.store, s.telemetry}, handle.key, v, e)
	})
}

// hasVisibleCalls reports whether v shows the call for each response in an event.
func hasVisibleCalls(v fold.View, e *patch.Event) bool {
	var missing []patch.FunctionPart
	for p := range e.FunctionParts() {
		if p.Response {
			missing = append(missing, p)
		}
	}
	for i := v.Len() - 1; i >= 0 && len(missing) > 0; i-- {
		for p := range v.At(i).FunctionParts() {
			for j := len(missing) - 1; j >= 0 && !p.Response; j-- {
				if m := missing[j]; m.ID == p.ID && (m.ID != "" || m.Name == p.Name) {
					missing = append(missing[:j], missing[j+1:]...)
				}
			}
		}
	}
	return len(missing) == 0
}

// showRestored moves the session to the view after calls were restored. While a workflow node runs, it also appends
// the restored calls to the frozen list of events.
func (s *Session) showRestored(done store.Committed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := map[patch.FunctionPart]bool{}
	for _, e := range s.frozen {
		for p := range e.FunctionParts() {
			p.Index = 0
			shown[p] = true
		}
	}
	for _, r := range done.Records {
		if s.frozen == nil || r.Patch == nil {
			continue
		}
		for _, e := range r.Patch.NewEvents() {
			for p := range e.FunctionParts() {
				p.Index = 0
				if !shown[p] {
					s.frozen = append(s.frozen, e)
					break
				}
			}
		}
	}
	s.advanceLocked(done.View)
}
