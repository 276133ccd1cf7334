package fold

import (
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// callKey is what a function call and its response have in common: the call id, or
// the function's name where there is no id.
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
	pos   int // of its event in the visible log; -1 if the event is not in it yet
	event *patch.Event
	node  nodeID
	place int // among all parts of the visible log
}

// pairing knows the function parts of a visible log by key, and pairs them. Parts of
// different keys never meet, so a change is judged by the keys that it touches.
type pairing struct {
	byKey map[callKey][]part // in the order of the visible log
	calls int
	parts int
}

// pairingCache holds a view's pairing once it has been asked for.
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
	i := 0
	for n := range v.nodes.all {
		if n.event == nil {
			continue
		}
		for fp := range n.event.FunctionParts() {
			key := keyOf(fp)
			p.byKey[key] = append(p.byKey[key], part{fp, i, n.event, n.id(), p.parts})
			p.parts++
			if !fp.Response {
				p.calls++
			}
		}
		i++
	}
	return p
}

const unpaired = -1

// oneEach is how a call and the response after it are paired.
var oneEach = []int{1, 0}

// pair returns for each part the index of its partner: for a response that of the
// call that it answers or amends, for a call that of the response that answered it
// first. The result is not to be changed. parts must be of one key and in order; parts of one event must be adjacent.
//
// A response answers, in the latest earlier event that has an unanswered call (the
// same branch first), the first such call; failing that it amends the latest earlier
// call; else it is unpaired.
func pair(parts []part) []int {
	if len(parts) == 2 && !parts[0].Response && parts[1].Response && parts[0].pos != parts[1].pos {
		return oneEach // as nearly all are
	}
	partner := make([]int, len(parts))
	var open openCalls
	lastCall := unpaired
	for from := 0; from < len(parts); {
		to := from
		for to < len(parts) && parts[to].event == parts[from].event && parts[to].pos == parts[from].pos {
			to++
		}
		var asked []int // calls of this event; they are not earlier for its own responses
		for i := from; i < to; i++ {
			partner[i] = unpaired
			if !parts[i].Response {
				asked = append(asked, i)
				continue
			}
			if c := open.answer(parts[i].event.Branch()); c != unpaired {
				partner[i], partner[c] = c, i
			} else {
				partner[i] = lastCall
			}
		}
		if len(asked) > 0 {
			open.push(&openGroup{branch: parts[from].event.Branch(), calls: asked})
			lastCall = asked[len(asked)-1]
		}
		from = to
	}
	return partner
}

// openCalls holds the events with unanswered calls of one key, the latest on top, all
// together and by branch. An event whose calls are all answered is dropped when it
// comes to a top.
type openCalls struct {
	all      []*openGroup
	byBranch map[string][]*openGroup
}

// openGroup is the unanswered calls of one event, in order.
type openGroup struct {
	branch string
	calls  []int
}

func (o *openCalls) push(g *openGroup) {
	o.all = append(o.all, g)
	if o.byBranch == nil {
		o.byBranch = map[string][]*openGroup{}
	}
	o.byBranch[g.branch] = append(o.byBranch[g.branch], g)
}

func (o *openCalls) answer(branch string) int {
	own := dropEmpty(o.byBranch[branch])
	if len(own) > 0 {
		o.byBranch[branch] = own
		return own[len(own)-1].take()
	}
	delete(o.byBranch, branch)
	o.all = dropEmpty(o.all)
	if len(o.all) > 0 {
		return o.all[len(o.all)-1].take()
	}
	return unpaired
}

func (g *openGroup) take() int {
	c := g.calls[0]
	g.calls = g.calls[1:]
	return c
}

func dropEmpty(groups []*openGroup) []*openGroup {
	for len(groups) > 0 && len(groups[len(groups)-1].calls) == 0 {
		groups = groups[:len(groups)-1]
	}
	return groups
}
