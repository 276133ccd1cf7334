package fold

import "slices"

// Call is a function call in a visible log, with its responses.
type Call struct {
	Index     int    // of the call's event in the visible log
	Part      int    // index of the part in the event's content
	ID        string // the call id; may be empty
	Name      string // of the function
	Responses []int  // indices of the events that answer or amend the call, in order; nil if none

	// MustStay says that a patch must not hide the call: it is long-running and has no response by
	// the user, or it belongs to the newest invocation and has no response.
	MustStay bool

	// InNewestInvocation says that the call belongs to the newest invocation, answered or not. That
	// is the invocation of the newest regular event in the raw log that names one.
	InNewestInvocation bool
}

// Calls returns the function calls of the visible log in order, each with its responses. The caller
// owns the slice. The first call on a view takes time linear in its visible events, later ones in
// the number of calls.
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
	at := make([]int32, 0, p.parts) // index in calls, by the ordinal of the call's part
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
