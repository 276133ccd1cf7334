package fuzz

import (
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// part is a function call or response in a visible log.
type part struct {
	patch.FunctionPart
	node *node
	nth  int // index of the part among the function parts of its event
	pos  int // index of the part's event in the visible log
}

// place identifies a part. It is valid in several visible logs.
type place struct {
	node *node
	nth  int
}

func (p part) place() place { return place{p.node, p.nth} }

// matches reports whether a call and a response belong to each other. They have the same id, or they have no ids and
// the same name.
func (p part) matches(r part) bool {
	return p.ID == r.ID && (p.ID != "" || p.Name == r.Name)
}

func (p part) String() string {
	what := "call"
	if p.Response {
		what = "response"
	}
	if p.ID == "" {
		return fmt.Sprintf("%s %s() without id in event %q", what, p.Name, p.node.event.ID())
	}
	return fmt.Sprintf("%s %q of %s() in event %q", what, p.ID, p.Name, p.node.event.ID())
}

func partsOf(visible []*node) []part {
	var parts []part
	for i, n := range visible {
		nth := 0
		for f := range n.event.FunctionParts() {
			parts = append(parts, part{f, n, nth, i})
			nth++
		}
	}
	return parts
}

// pairing has the pairs of calls and responses in a visible log.
type pairing struct {
	parts     []part
	callOf    map[place]part   // key: place of a response; value: the call that it answers
	responses map[place][]part // key: place of a call; value: the response, followed by responses that amend it
}

// pair reads the visible log part by part. The key of a call or response is its id, or its function name if it has
// no id. A response answers an unanswered call with the same key in an earlier event. If several events have such a
// call, the latest event is used, preferably of the response's branch. In that event, the first such call is used.
// If no unanswered call has the key, the response amends the latest earlier call with the key.
func pair(visible []*node) pairing {
	p := pairing{partsOf(visible), map[place]part{}, map[place][]part{}}
	for _, r := range p.parts {
		if !r.Response {
			continue
		}
		unanswered := func(c part) bool { return len(p.responses[c.place()]) == 0 }
		sameBranch := func(c part) bool { return c.node.event.Branch() == r.node.event.Branch() }

		open := p.callsBefore(r, func(c part) bool { return unanswered(c) && sameBranch(c) })
		if len(open) == 0 {
			open = p.callsBefore(r, unanswered)
		}
		var call part
		if all := p.callsBefore(r, func(part) bool { return true }); len(open) > 0 {
			call = firstOfLatest(open)
		} else if len(all) > 0 {
			call = all[len(all)-1]
		} else {
			continue
		}
		p.callOf[r.place()] = call
		p.responses[call.place()] = append(p.responses[call.place()], r)
	}
	return p
}

// callsBefore returns the calls in earlier events that match response r and that accept allows, in order.
func (p pairing) callsBefore(r part, accept func(part) bool) []part {
	return filter(p.parts, func(c part) bool { return !c.Response && c.pos < r.pos && c.matches(r) && accept(c) })
}

// firstOfLatest returns the first call of the event that has the last call.
func firstOfLatest(calls []part) part {
	last := calls[len(calls)-1].pos
	return calls[slices.IndexFunc(calls, func(c part) bool { return c.pos == last })]
}

// isOpen reports whether a call is open. A call is open until it has a response. A long-running call is open until
// the user responds.
func (p pairing) isOpen(call part) bool {
	responses := p.responses[call.place()]
	byUser := func(r part) bool { return r.node.event.Author() == "user" }
	return len(responses) == 0 || isLongRunning(call) && !slices.ContainsFunc(responses, byUser)
}

func isLongRunning(call part) bool {
	return call.ID != "" && slices.Contains(call.node.event.LongRunningToolIDs(), call.ID)
}

// Rules that an [Orphan] breaks.
const (
	LostCall     = "the response would have no call"
	OtherCall    = "the response would answer another call"
	LostResponse = "the call would lose its response"
	HiddenCall   = "the call is still open and would be hidden"
	BarePosition = "the event with a call would come first, or after a summary of role model"
)

// Orphan is a violation of the rules for calls and responses.
type Orphan struct {
	Rule    string // LostCall, OtherCall, LostResponse, HiddenCall or BarePosition
	EventID string // id of the event with the call or response
	Call    string // id of the call; "" if the call has no id, or if the whole event is at fault
	Name    string // name of the function
	text    string
}

// orphans returns the violations that a change of the visible log causes. The log changes from before to after. The
// argument newest is the newest invocation.
func orphans(before, after []*node, newest string) []Orphan {
	var found []Orphan
	add := func(rule string, p part) {
		found = append(found, Orphan{rule, p.node.event.ID(), p.ID, p.Name, fmt.Sprintf("%v: %s", p, rule)})
	}
	pairsBefore, pairsAfter := pair(before), pair(after)
	for _, p := range pairsAfter.parts {
		survives := slices.Contains(before, p.node)
		call, paired := pairsAfter.callOf[p.place()]
		oldCall, wasPaired := pairsBefore.callOf[p.place()]
		switch {
		case p.Response && !paired && (wasPaired || !survives):
			add(LostCall, p)
		case p.Response && paired && wasPaired && call.place() != oldCall.place() && slices.Contains(before, call.node):
			add(OtherCall, p)
		case !p.Response && len(pairsBefore.responses[p.place()]) > 0 && len(pairsAfter.responses[p.place()]) == 0:
			add(LostResponse, p)
		}
	}
	for _, p := range pairsBefore.parts {
		if p.Response || slices.Contains(after, p.node) || !pairsBefore.isOpen(p) {
			continue
		}
		if invocation := invocationAt(before, p.pos); isLongRunning(p) || invocation != "" && invocation == newest {
			add(HiddenCall, p)
		}
	}
	for i, n := range after {
		if !hasCall(n.event) || !isBare(after, i) {
			continue
		}
		if old := slices.Index(before, n); old < 0 || !isBare(before, old) {
			found = append(found, Orphan{
				Rule: BarePosition, EventID: n.event.ID(), text: fmt.Sprintf("event %q: %s", n.event.ID(), BarePosition),
			})
		}
	}
	return found
}

// invocationAt returns the invocation of visible event i. If the event has none, it returns the invocation of
// the nearest visible event before it that has one, or "".
func invocationAt(visible []*node, i int) string {
	for ; i >= 0; i-- {
		if id := visible[i].event.InvocationID(); id != "" {
			return id
		}
	}
	return ""
}

// isBare reports whether no event with content precedes visible event i, or whether the last such event is a summary
// of role model.
func isBare(visible []*node, i int) bool {
	for _, previous := range slices.Backward(visible[:i]) {
		if previous.event.SaysSomething() {
			return previous.isSummary() && previous.event.Role() == "model"
		}
	}
	return true
}

func hasCall(e *patch.Event) bool {
	for f := range e.FunctionParts() {
		if !f.Response {
			return true
		}
	}
	return false
}
