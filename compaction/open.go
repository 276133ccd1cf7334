package compaction

import (
	"encoding/json"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Functions that an agent calls to ask the user, by their names in ADK. The user's side
// answers them, however long that takes.
const (
	askConfirmation = "adk_request_confirmation"
	askCredential   = "adk_request_credential"
	askInput        = "adk_request_input"
)

// holdOpenCalls lets the events of open calls stay. A call is open while nothing answers
// it; one that is long-running or asks the user, until the user's side does: what the
// tool itself returned is a placeholder. A call that the user is asked about is open
// until that is answered and the call itself has returned since, and the asking stays
// for as long as the call does. Of calls that nobody answered in invocations that are
// over, the newest maxOpenCalls stay.
func (s *visible) holdOpenCalls(calls []fold.Call, maxOpenCalls int) {
	byID := map[string]int{} // the newest call of an id so far
	pending := make([]bool, len(calls))
	unanswered := make([]bool, len(calls))
	askedAbout := map[int]int{} // answered requests, and the calls that have to return yet
	anyAsks := slices.ContainsFunc(calls, asksUser)
	for i, c := range calls {
		if c.Held {
			s.stays[c.Index] = true
		}
		asks := asksUser(c)
		if !asks && (c.ID == "" || !s.entries[c.Index].Event.IsLongRunning(c.ID)) {
			unanswered[i] = len(c.Responses) == 0
		} else {
			answer := slices.IndexFunc(c.Responses, func(r int) bool { return s.entries[r].Event.Author() == "user" })
			pending[i] = answer < 0
			if about, ok := byID[s.concerns(c)]; ok && asks {
				concerned := calls[about]
				switch {
				case pending[i]:
					pending[about] = true
				case !slices.ContainsFunc(concerned.Responses, func(r int) bool { return r >= c.Responses[answer] }):
					unanswered[about] = true
					askedAbout[i] = about
				}
			}
		}
		if anyAsks && c.ID != "" {
			byID[c.ID] = i
		}
	}
	kept := 0
	for i := len(calls) - 1; i >= 0; i-- {
		at := calls[i].Index
		switch {
		case pending[i]:
			s.stays[at] = true
		case !unanswered[i]:
		case calls[i].Held, s.invocation[at] == s.live && s.live != noInvocation, s.invocation[at] == s.newest:
			s.stays[at] = true
		case kept < maxOpenCalls:
			kept++
			s.stays[at] = true
		}
	}
	for i, about := range askedAbout {
		if s.stays[calls[about].Index] {
			s.stays[calls[i].Index] = true
		}
	}
}

func asksUser(c fold.Call) bool {
	return c.Name == askConfirmation || c.Name == askCredential || c.Name == askInput
}

// concerns returns the id of the call that the user is asked about, or "".
func (s *visible) concerns(c fold.Call) string {
	if c.Name != askConfirmation && c.Name != askCredential {
		return ""
	}
	var args struct {
		Original struct {
			ID string `json:"id"`
		} `json:"originalFunctionCall"`
		ID    string `json:"functionCallId"`
		Snake string `json:"function_call_id"`
	}
	for i, p := range s.entries[c.Index].Event.Content().Parts() {
		if i == c.Part && p.Kind() == patch.PartCall && json.Unmarshal(p.Args(), &args) != nil {
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
