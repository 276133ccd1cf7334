package compaction

import (
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// WaitingCalls returns the visible calls that wait for the user's side and that compaction keeps: long-running calls
// and requests to the user that the user's side has not answered. Compaction keeps all such calls of the running and
// the newest invocation, and the newest eight such calls of earlier invocations. Callers that resume runs should put
// the ids of the events with these calls into [Run.Pinned]. Older calls are summarised as unanswered; [RestoreCalls]
// restores them when their response arrives.
func WaitingCalls(v fold.View, cfg Config, run Run) []fold.Call {
	_, waiting := newShape(v, run).openCalls(v.Calls(), cfg.withDefaults())
	slices.Reverse(waiting)
	return waiting
}

// openCalls reports which events stay because of open calls. A call is open until it is answered. Only the user's side
// answers a long-running call or a request to the user: the tool's own response is a placeholder. If a request is about
// a call, the call is open until the request is answered and the call has returned after that; the request stays as
// long as the call. Of the unanswered calls of completed invocations, only the newest few stay. waiting are the calls
// that stay because they wait for the user's side, the last first.
func (s *shape) openCalls(calls []fold.Call, cfg Config) (stays []bool, waiting []fold.Call) {
	stays = make([]bool, len(s.entries))
	byID := map[string]int{} // the newest call of an id so far
	pending := make([]bool, len(calls))
	unanswered := make([]bool, len(calls))
	pendingAbout := map[int]int{}  // calls by the pending request about them
	answeredAbout := map[int]int{} // calls that have not returned since the answer, by the answered request about them
	anyAsks := slices.ContainsFunc(calls, asksUser)
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
					pendingAbout[i] = about
					unanswered[about] = false // the call goes when the request goes
				case !slices.ContainsFunc(calls[about].Responses, func(r int) bool { return r >= c.Responses[answer] }):
					unanswered[about] = true
					answeredAbout[i] = about
				}
			}
		}
		if anyAsks && c.ID != "" {
			byID[c.ID] = i
		}
	}
	kept, keptWaiting := 0, 0
	for i, c := range slices.Backward(calls) {
		active := s.inActiveInvocation(c)
		if about, ok := pendingAbout[i]; ok { // the call is summarised when the request is
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
			stays[c.Index] = true
			if about, ok := pendingAbout[i]; ok {
				stays[calls[about].Index] = true
			}
		case !unanswered[i]:
		case active:
			stays[c.Index] = true
		case kept < cfg.limits.OpenCalls:
			kept++
			stays[c.Index] = true
		}
	}
	for changed := true; changed; { // an event that stays may make another one stay
		changed = false
		for i, about := range answeredAbout {
			if stays[calls[about].Index] && !stays[calls[i].Index] {
				stays[calls[i].Index], changed = true, true
			}
		}
	}
	return stays, waiting
}

// inActiveInvocation reports whether the call belongs to the running or the newest invocation.
func (s *shape) inActiveInvocation(c fold.Call) bool {
	number := s.invocation[c.Index]
	return c.InNewestInvocation || number == s.running && s.running != noInvocation || number == s.newest
}

func asksUser(c fold.Call) bool { return records.IsRequest(c.Name) }

// subjectOf returns the id of the call about which a request asks the user, or "".
func (s *shape) subjectOf(c fold.Call) string {
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
