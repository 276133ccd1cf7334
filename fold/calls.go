package fold

import "slices"

// Call is a function call in a visible log, with its responses.
type Call struct {
	Index     int    // index of the call's event in the visible log
	Part      int    // index of the part in the event's content
	ID        string // call id; may be empty
	Name      string // name of the function
	Responses []int  // indices of the events that answer or amend the call, in order; nil if there are none

	// MustStay says that a patch must not hide the call. A long-running call must stay until the user responds.
	// Another call must stay if it has no response and belongs to the newest invocation.
	MustStay bool

	// InNewestInvocation says that the call belongs to the newest invocation. The newest event in the raw log
	// with an invocation id determines the newest invocation.
	InNewestInvocation bool
}

// Calls returns the function calls of the visible log in order, each with its responses. The caller owns the
// slice. The first use of Calls on a view takes time linear in the number of visible events. Later uses take
// time linear in the number of function calls.
func (v View) Calls() []Call {
	var all []Call
	if v.pairs == nil { // the zero View
		all = v.findCalls()
	} else {
		v.pairs.callsOnce.Do(func() { v.pairs.calls = v.findCalls() })
		all = v.pairs.calls
	}
	calls := slices.Clone(all)
	total := 0
	for _, c := range all {
		total += len(c.Responses)
	}
	responses := make([]int, total) // backing array of all Responses
	for i, c := range all {
		if n := copy(responses, c.Responses); n > 0 {
			calls[i].Responses, responses = responses[:n:n], responses[n:]
		}
	}
	return calls
}

func (v View) findCalls() []Call {
	p := v.pairing()
	calls := make([]Call, 0, p.calls)
	at := make([]int32, 0, p.parts) // maps the ordinal of a part to the call's index in calls
	for i, e := range v.Events() {
		for fp := range e.FunctionParts() {
			at = append(at, int32(len(calls)))
			if !fp.Response {
				calls = append(calls, Call{Index: i, Part: fp.Index, ID: fp.ID, Name: fp.Name})
			}
		}
	}
	responses := make([]int, p.parts-p.calls) // backing array of all Responses
	for _, parts := range p.byKey {
		for i, partner := range pair(parts) {
			if !parts[i].Response || partner == unpaired {
				continue
			}
			c := &calls[at[parts[partner].ordinal]]
			if c.Responses == nil {
				c.Responses, responses = responses[:0:1], responses[1:]
			}
			c.Responses = append(c.Responses, parts[i].pos)
		}
	}
	for i := range calls {
		c := &calls[i]
		c.InNewestInvocation = v.isNewest(c.Index)
		if e := v.At(c.Index); isLongRunning(e, c.ID) {
			c.MustStay = !slices.ContainsFunc(c.Responses, func(r int) bool { return v.At(r).Author() == "user" })
		} else if c.Responses == nil {
			c.MustStay = c.InNewestInvocation
		}
	}
	return calls
}
