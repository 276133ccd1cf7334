package fold

import (
	"cmp"
	"slices"
)

// CheckOrphans reports whether several patches, which lead from the view to after, leave a
// function call or response as no patch may; nil means that they do not. It judges what
// they do together: a call that one takes out and a response that another does are no
// orphans. The error is an *[OrphanError] without a suggestion.
//
// It takes time linear in the number of visible events of both views.
func (v View) CheckOrphans(after View, opts CheckOptions) error {
	if opts.AllowOrphans {
		return nil
	}
	before, then := v.pairing().byKey, after.pairing().byKey
	place := v.places()
	var out []Orphan
	for key, parts := range then {
		was := make([]int, len(parts))
		at := map[partID]int{}
		for i, p := range before[key] {
			at[v.partID(p)] = i
		}
		stands := make([]bool, len(before[key]))
		for i, p := range parts {
			was[i] = unpaired
			if j, known := at[after.partID(p)]; known {
				was[i], stands[j] = j, true
			}
		}
		gone := func(p part) bool { return !stands[at[v.partID(p)]] }
		out = append(out, v.orphansOf(before[key], parts, was, gone, opts.HideWaiting)...)
	}
	for key, parts := range before {
		if _, some := then[key]; !some {
			out = append(out, v.orphansOf(parts, nil, nil, func(part) bool { return true }, opts.HideWaiting)...)
		}
	}
	out = append(out, v.misplacedIn(after, place)...)
	if len(out) == 0 {
		return nil
	}
	for i, o := range out {
		// As the view has it, which the patches' author knows.
		out[i].Index = -1
		if j, ok := v.Find(o.EventID); ok {
			out[i].Index = j
		}
	}
	slices.SortFunc(out, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.EventID, b.EventID), cmp.Compare(a.CallID, b.CallID), cmp.Compare(a.Problem, b.Problem))
	})
	return &OrphanError{Orphans: out, fixed: true}
}

type partID struct {
	nodeID
	part int
}

func (v View) partID(p part) partID {
	n := v.node(p.pos)
	return partID{n.id(), p.Index}
}

// places gives the index of each visible event.
func (v View) places() map[nodeID]int {
	at := make(map[nodeID]int, v.Len())
	i := 0
	v.root.walk(0, v.root.len(), func(n *node) bool {
		if n.event != nil {
			at[n.id()] = i
			i++
		}
		return true
	})
	return at
}

// misplacedIn lists the calls that stand in after where a model's API accepts none and
// did not here, where the events have the given places.
func (v View) misplacedIn(after View, places map[nodeID]int) []Orphan {
	var out []Orphan
	problem := problemFirst
	i := 0
	after.root.walk(0, after.root.len(), func(n *node) bool {
		if n.event == nil {
			return true
		}
		if problem != "" {
			if was, stood := places[n.id()]; !stood || !v.misplaced(was) {
				out = append(out, callsOf(n.event, i, problem)...)
			}
		}
		problem = ""
		if n.event.Role() == "model" && n.isSummary() {
			problem = problemAfter
		}
		i++
		return true
	})
	return out
}

// misplaced reports whether a model's API would accept no call where the event stands.
func (v View) misplaced(i int) bool {
	return i == 0 || v.At(i-1).Role() == "model" && v.IsSummary(i-1)
}
