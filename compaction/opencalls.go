package compaction

import (
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// WaitingCalls returns the visible calls that wait for the user and that compaction keeps. A call waits if it is a
// long-running call or a request to the user, and the user has not answered it. Compaction keeps all waiting calls of
// the running and the newest invocation, and the newest eight waiting calls of earlier invocations. It summarises older
// calls as unanswered, and [RestoreCalls] restores them when their response arrives. Callers that resume runs should
// put the ids of the events with the returned calls into [Run.Pinned].
func WaitingCalls(v fold.View, cfg Config, run Run) []fold.Call {
	_, waiting := newPlanner(v, run).openCalls(v.Calls(), cfg.withDefaults())
	slices.Reverse(waiting)
	return waiting
}

// openCalls marks the events that stay because of open calls.
//
// An ordinary call is open until it has a response. A long-running call or a request to the user is open until the user
// responds, because the tool's own response is only a placeholder. If a request is about a call, that call is open
// until the request is answered and the call has returned after the answer. The request stays visible as long as the
// call.
//
// Of the open calls of completed invocations, only the newest few stay. The result waiting has the calls that stay and
// wait for the user, in reverse order.
func (s *planner) openCalls(calls []fold.Call, cfg Config) (excluded []bool, waiting []fold.Call) {
	excluded = make([]bool, len(s.entries))
	byID := map[string]int{} // index of the newest call so far with each id
	pending := make([]bool, len(calls))
	unanswered := make([]bool, len(calls))
	subjectOfPending := map[int]int{}  // key: a pending request; value: the call it is about
	subjectOfAnswered := map[int]int{} // key: an answered request; value: the call it is about, if that call has not returned since the answer
	hasRequest := slices.ContainsFunc(calls, asksUser)
	for i, c := range calls {
		isRequest := asksUser(c)
		if !isRequest && (c.ID == "" || !records.IsLongRunning(s.entries[c.Index].Event, c.ID)) {
			unanswered[i] = len(c.Responses) == 0
		} else {
			answer := slices.IndexFunc(c.Responses, func(r int) bool { return s.entries[r].Event.Author() == "user" })
			pending[i] = answer < 0
			if about, ok := byID[s.subjectOf(c)]; ok && isRequest {
				switch {
				case pending[i]:
					subjectOfPending[i] = about
					unanswered[about] = false // the request decides whether the call stays
				case !slices.ContainsFunc(calls[about].Responses, func(r int) bool { return r >= c.Responses[answer] }):
					unanswered[about] = true
					subjectOfAnswered[i] = about
				}
			}
		}
		if hasRequest && c.ID != "" {
			byID[c.ID] = i
		}
	}
	keptOpen, keptWaiting := 0, 0
	for i, c := range slices.Backward(calls) {
		active := s.inActiveInvocation(c)
		if about, ok := subjectOfPending[i]; ok { // the call that the request is about stays or is hidden together with the request
			active = active || s.inActiveInvocation(calls[about])
		}
		switch {
		case pending[i]:
			if !active {
				if keptWaiting == cfg.limits.WaitingCalls {
					continue
				}
				keptWaiting++
			}
			waiting = append(waiting, c)
			excluded[c.Index] = true
			if about, ok := subjectOfPending[i]; ok {
				excluded[calls[about].Index] = true
			}
		case !unanswered[i]:
		case active:
			excluded[c.Index] = true
		case keptOpen < cfg.limits.OpenCalls:
			keptOpen++
			excluded[c.Index] = true
		}
	}
	for changed := true; changed; { // repeat, because an event that stays can make another event stay
		changed = false
		for i, about := range subjectOfAnswered {
			if excluded[calls[about].Index] && !excluded[calls[i].Index] {
				excluded[calls[i].Index], changed = true, true
			}
		}
	}
	return excluded, waiting
}

// inActiveInvocation reports whether the call belongs to the running or the newest invocation.
func (s *planner) inActiveInvocation(c fold.Call) bool {
	number := s.invocation[c.Index]
	return c.InNewestInvocation || number == s.running && s.running != noInvocation || number == s.newest
}

func asksUser(c fold.Call) bool { return records.IsRequest(c.Name) }

// subjectOf returns the id of the call that a request to the user is about, or "".
func (s *planner) subjectOf(c fold.Call) string {
	if c.Name != records.RequestConfirmation && c.Name != records.RequestCredential {
		return ""
	}
	var args struct {
		Original struct {
			ID string `json:"id"`
		} `json:"originalFunctionCall"`
		ID    string `json:"functionCallId"`
		Snake string `json:"function_call_id"`
	}
	for i, p := range s.entries[c.Index].Event.Parts() {
		if i == c.Part && p.Kind == patch.PartCall && p.Args.Decode(&args) != nil {
			return ""
		}
	}
	for _, id := range []string{args.Original.ID, args.ID, args.Snake} {
		if id != "" {
			return id
		}
	}
	return ""
}
