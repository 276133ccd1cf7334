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
// open tasks, and calls for which the function leave returns true. If a result arrives later, [ReopenCalls] hides the
// inserted answer.
func CloseCalls(v fold.View, newID func() string, leave func(fold.Call) bool) ([]*patch.PatchEvent, error) {
	open := slices.DeleteFunc(interruptedCalls(v), leave)
	var patches []*patch.PatchEvent
	for i := len(open) - 1; i >= 0; {
		at := open[i].Index
		var parts []any
		for ; i >= 0 && open[i].Index == at; i-- {
			response := map[string]any{"name": open[i].Name, "response": map[string]any{"error": interruptedAnswer}}
			if open[i].ID != "" {
				response["id"] = open[i].ID
			}
			parts = append([]any{map[string]any{"functionResponse": response}}, parts...)
		}
		of := v.At(at)
		fields := patch.Fields{
			ID: newID(), InvocationID: of.InvocationID(), Author: of.Author(), Branch: of.Branch(), IsolationScope: of.IsolationScope(),
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
		patches = append(patches, patch.NewSplice(at+1, 0, answer).WithID(InterruptedPrefix+newID()))
	}
	return grouped(patches, "patchlog", newID), nil
}

// interruptedCalls returns the visible calls without a response, except those that the user or the end of a task will
// answer.
func interruptedCalls(v fold.View) (open []fold.Call) {
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
	ahead := maps.Clone(answered)                         // answered calls that are not found yet
	for i := v.Len() - 1; i >= 0 && len(ahead) > 0; i-- { // an answer follows its call
		var gone, left []int
		for p := range v.At(i).FunctionParts() {
			at := p.Index
			switch p.Index = 0; {
			case answered[p]:
				gone = append(gone, at)
			case p.Response:
				left = append(left, at)
			case p.ID != "":
				p.Response = true
				delete(ahead, p)
			}
		}
		if len(gone) == 0 || !isInterrupted(v.At(i)) {
			continue
		}
		var rest []*patch.Event
		if len(left) > 0 {
			one, err := withParts(v.At(i), left, nil)
			if err != nil {
				return nil, err
			}
			rest = append(rest, one)
		}
		patches = append(patches, patch.NewSplice(i, 1, rest...).WithState(patch.Keep))
	}
	return grouped(patches, "patchlog", uuid.NewString), nil
}

// isInterrupted reports whether [CloseCalls] made the event.
func isInterrupted(e *patch.Event) bool {
	var metadata map[string]any
	return e.Decode("customMetadata", &metadata) == nil && metadata[InterruptedKey] == true
}

// grouped sets the author of the patches. If there are several, it also gives them a common group.
func grouped(patches []*patch.PatchEvent, author string, newID func() string) []*patch.PatchEvent {
	group := ""
	if len(patches) > 1 {
		group = newID()
	}
	for i, p := range patches {
		patches[i] = p.WithAuthor(author).WithGroup(group)
	}
	return patches
}
