package compaction

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

const (
	// InterruptedKey is a key in the custom metadata of the events that [CloseCalls] inserts.
	InterruptedKey = "patchlog_interrupted"

	// InterruptedPrefix is the prefix of the ids of [CloseCalls]'s patches. Reverting such a patch leaves calls without
	// a response, which a store refuses without AllowOrphans.
	InterruptedPrefix = "interrupted-"

	interruptedAnswer = "interrupted: no result was recorded"
)

// RunLease returns the name of the lease ([store.Store.Lease]) that a process holds while it runs the invocation.
//
// [store.Store.Lease]: https://pkg.go.dev/github.com/patchlog-dev/patchlog/store#Store.Lease
func RunLease(invocation string) string { return "run " + invocation }

// CloseCalls returns patches that answer the open calls of ended runs, because model APIs refuse prompts with
// unanswered calls. Each patch inserts the answer "interrupted: no result was recorded" directly after the event with
// the call. The patches are in reverse order of the events, and several patches form a group. The function newID
// returns new ids.
//
// The following calls stay open: calls that the user must answer, calls that a request to the user is about, calls of
// open tasks, and calls for which keepOpen returns true. If a result arrives later, [ReopenCalls] hides
// the inserted answer.
func CloseCalls(v fold.View, newID func() string, keepOpen func(fold.Call) bool) ([]*patch.PatchEvent, error) {
	open := slices.DeleteFunc(unansweredCalls(v), keepOpen)
	var patches []*patch.PatchEvent
	for i := len(open) - 1; i >= 0; {
		index := open[i].Index
		var parts []any
		for ; i >= 0 && open[i].Index == index; i-- {
			response := map[string]any{"name": open[i].Name, "response": map[string]any{"error": interruptedAnswer}}
			if open[i].ID != "" {
				response["id"] = open[i].ID
			}
			parts = append([]any{map[string]any{"functionResponse": response}}, parts...)
		}
		caller := v.At(index)
		fields := patch.Fields{
			ID: newID(), InvocationID: caller.InvocationID(), Author: caller.Author(), Branch: caller.Branch(), IsolationScope: caller.IsolationScope(),
			Timestamp: caller.Timestamp(), ZeroTime: true,
			Content: map[string]any{"role": "user", "parts": parts}, CustomMetadata: map[string]any{InterruptedKey: true},
		}
		if node, ok := caller.Field("nodeInfo"); ok {
			fields.Extra = map[string]any{"nodeInfo": node}
		}
		answer, err := patch.NewEvent(fields)
		if err != nil {
			return nil, err
		}
		patches = append(patches, patch.NewSplice(index+1, 0, answer).WithID(InterruptedPrefix+newID()))
	}
	return groupPatches(patches, "patchlog", newID), nil
}

// unansweredCalls returns the visible calls without a response. It omits calls that the user or the end of a task
// will answer.
func unansweredCalls(v fold.View) (open []fold.Call) {
	var requests []string
	for _, c := range v.Calls() {
		e := v.At(c.Index)
		_, asks := e.Field("requestedInput")
		switch {
		case len(c.Responses) > 0:
		case records.IsRequest(c.Name):
			content := e.Content()
			requests = append(requests, content.String())
		case !asks && !records.IsLongRunning(e, c.ID):
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	tasks := map[string]bool{}
	for _, e := range v.Events() {
		tasks[e.IsolationScope()] = true
	}
	return slices.DeleteFunc(open, func(c fold.Call) bool {
		return c.ID != "" && (tasks[c.ID] || slices.ContainsFunc(requests, func(r string) bool { return strings.Contains(r, strconv.Quote(c.ID)) }))
	})
}

// ReopenCalls returns patches that hide the answers of [CloseCalls] to the calls that the late events answer. Until the
// late events are logged, these calls have no response.
func ReopenCalls(v fold.View, late ...*patch.Event) (patches []*patch.PatchEvent, err error) {
	answered := map[patch.FunctionPart]bool{}
	for _, e := range late {
		for p := range e.FunctionParts() {
			if p.Index = 0; p.Response {
				answered[p] = true
			}
		}
	}
	pending := maps.Clone(answered)                         // answered calls that have not been found yet
	for i := v.Len() - 1; i >= 0 && len(pending) > 0; i-- { // search backwards, because an answer follows its call
		var removed, remaining []int
		for p := range v.At(i).FunctionParts() {
			at := p.Index
			switch p.Index = 0; {
			case answered[p]:
				removed = append(removed, at)
			case p.Response:
				remaining = append(remaining, at)
			case p.ID != "":
				p.Response = true
				delete(pending, p)
			}
		}
		if len(removed) == 0 || !isInterrupted(v.At(i)) {
			continue
		}
		var rest []*patch.Event
		if len(remaining) > 0 {
			reduced, err := withParts(v.At(i), remaining, nil)
			if err != nil {
				return nil, err
			}
			rest = append(rest, reduced)
		}
		patches = append(patches, patch.NewSplice(i, 1, rest...).WithState(patch.Keep))
	}
	return groupPatches(patches, "patchlog", uuid.NewString), nil
}

// isInterrupted reports whether [CloseCalls] created the event.
func isInterrupted(e *patch.Event) bool {
	var metadata map[string]any
	return e.Decode("customMetadata", &metadata) == nil && metadata[InterruptedKey] == true
}

// groupPatches sets the author of the patches. If there are several, it also gives them a common group.
func groupPatches(patches []*patch.PatchEvent, author string, newID func() string) []*patch.PatchEvent {
	group := ""
	if len(patches) > 1 {
		group = newID()
	}
	for i, p := range patches {
		patches[i] = p.WithAuthor(author).WithGroup(group)
	}
	return patches
}
