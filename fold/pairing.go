package fold

import (
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// callKey is the key that a function call and its response share: the call id, or the function's name if there
// is no id.
type callKey struct {
	text   string
	byName bool
}

func keyOf(p patch.FunctionPart) callKey {
	if p.ID != "" {
		return callKey{p.ID, false}
	}
	return callKey{p.Name, true}
}

// part is a function call or response in a visible log.
type part struct {
	patch.FunctionPart
	pos     int // index of its event in the visible log; -1 for a new event
	event   *patch.Event
	node    nodeID
	ordinal int // index among all parts of the visible log
}

// pairing contains the function parts of a visible log by key. Parts with different keys are never paired.
// Checking a change therefore needs only the keys of the changed parts.
type pairing struct {
	byKey       map[callKey][]part // parts of each key, in the order of the visible log
	calls       int
	parts       int
	withContent []int // indices of the events with text or data
}

// pairingCache caches a view's pairing and calls.
type pairingCache struct {
	once    sync.Once
	pairing pairing

	callsOnce sync.Once
	calls     []Call
}

func (v View) pairing() pairing {
	if v.pairs == nil { // the zero View
		return newPairing(v)
	}
	v.pairs.once.Do(func() { v.pairs.pairing = newPairing(v) })
	return v.pairs.pairing
}

func newPairing(v View) pairing {
	p := pairing{byKey: map[callKey][]part{}}
	for i, n := range v.visible(0, v.Len()) {
		if n.event.SaysSomething() {
			p.withContent = append(p.withContent, i)
		}
		for fp := range n.event.FunctionParts() {
			key := keyOf(fp)
			p.byKey[key] = append(p.byKey[key], part{fp, i, n.event, n.id(), p.parts})
			p.parts++
			if !fp.Response {
				p.calls++
			}
		}
	}
	return p
}

const unpaired = -1

// singlePair is the result of pair for one call and its response, which is the most frequent case.
var singlePair = []int{1, 0}

// pair returns the index of each part's partner. The partner of a response is the call that it answers or
// amends. The partner of a call is the first response that answers it. The caller must not change the result.
// The parts must have the same key and be in order. Parts of one event must be adjacent.
//
// Of the earlier events that have unanswered calls, take the latest. The response answers the first unanswered
// call of this event. Events of the response's branch have priority. If no call is unanswered, the response amends
// the latest earlier call. If there is no earlier call, the response is unpaired.
func pair(parts []part) []int {
	if len(parts) == 2 && !parts[0].Response && parts[1].Response && parts[0].pos != parts[1].pos {
		return singlePair
	}
	partner := make([]int, len(parts))
	open := openCalls{}
	lastCall := unpaired
	for from := 0; from < len(parts); {
		to := from
		for to < len(parts) && parts[to].event == parts[from].event && parts[to].pos == parts[from].pos {
			to++
		}
		var calls []int // calls of the current event; responses in the same event do not answer them
		for i := from; i < to; i++ {
			partner[i] = unpaired
			if !parts[i].Response {
				calls = append(calls, i)
				continue
			}
			// An agent may reuse an id, and a response then belongs to the latest call. In "call a, response,
			// call a, response", each response answers the call before it. If all calls are answered, the
			// response is another response to the latest call, such as the final result after a placeholder.
			if c := open.answer(parts[i].event.Branch()); c != unpaired {
				partner[i], partner[c] = c, i
			} else {
				partner[i] = lastCall
			}
		}
		// The calls are added after the event's responses, so that these responses do not answer them.
		if len(calls) > 0 {
			open.push(parts[from].event.Branch(), calls)
			lastCall = calls[len(calls)-1]
		}
		from = to
	}
	return partner
}

// openCalls contains the unanswered calls of one key. It has a list for each branch, and a list for all
// branches. Each element of a list contains the calls of one event, and the latest event is last. An empty
// element is dropped when it becomes the last one.
type openCalls map[openKey][]*openGroup

// openKey is a branch, or all branches.
type openKey struct {
	branch string
	all    bool
}

// openGroup contains the unanswered calls of one event, in order.
type openGroup struct{ calls []int }

func (o openCalls) push(branch string, calls []int) {
	g := &openGroup{calls}
	for _, key := range []openKey{{branch: branch}, {all: true}} {
		o[key] = append(o[key], g)
	}
}

// answer removes and returns the call that a response in the given branch answers. This is the first open call
// of the latest event in the branch. If the branch has no open call, it is the first open call of the latest
// event. If there is none at all, answer returns unpaired.
func (o openCalls) answer(branch string) int {
	for _, key := range []openKey{{branch: branch}, {all: true}} {
		for groups := o[key]; len(groups) > 0; groups = o[key] {
			g := groups[len(groups)-1]
			if len(g.calls) > 0 {
				call := g.calls[0]
				g.calls = g.calls[1:]
				return call
			}
			o[key] = groups[:len(groups)-1]
		}
	}
	return unpaired
}
