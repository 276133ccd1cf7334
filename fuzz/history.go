package fuzz

import (
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// History returns the events that are visible or that a visible summary represents, without the summaries. The
// events are in the order of all nodes. In this order, the nodes that patches removed are back in their places. The
// caller owns the slice.
func (r *Reference) History() []*patch.Event {
	represented := map[*node]bool{}
	for _, n := range r.nodes {
		represented[n] = true
	}
	for known := 0; len(represented) > known; {
		known = len(represented)
		for _, a := range r.applied {
			for _, n := range a.out {
				if r.isActive(a) && r.isRepresented(a, n, represented) {
					represented[n] = true
				}
			}
		}
	}
	return eventsOf(filter(visibleOf(restoreRuns(r.nodes)), func(n *node) bool { return represented[n] && !coversOthers(n) }))
}

// isRepresented reports whether node n, which patch a removed, is represented by a visible summary. The map
// represented has the nodes for which this is already known.
func (r *Reference) isRepresented(a *applied, n *node, represented map[*node]bool) bool {
	switch {
	case a.target != nil:
		return false
	case a.in[0].event != nil:
		return represented[summaryOf(a, n)]
	case a.dropsState:
		return false
	case a.compactionCut && represented[a.in[0]]:
		return true
	}
	return a.group != "" && slices.ContainsFunc(r.applied, func(of *applied) bool { return of.group == a.group && represented[summaryOf(of, n)] })
}

// restoreRuns returns the nodes with the removed run of each patch restored. The run is restored before the
// first summary that the patch inserted. If the patch inserted no summary, the run is restored before the first
// node that the patch inserted.
func restoreRuns(nodes []*node) (all []*node) {
	for _, n := range nodes {
		if n.insertedBy != nil && n.insertedBy.target == nil && n == append(summariesOf(n.insertedBy), n.insertedBy.in...)[0] {
			all = append(all, restoreRuns(n.insertedBy.out)...)
		}
		all = append(all, n)
	}
	return all
}

// coversOthers reports whether a node is a summary that a patch inserted in place of events.
func coversOthers(n *node) bool {
	return n.insertedBy != nil && slices.Contains(summariesOf(n.insertedBy), n)
}

// summariesOf returns the summaries that a patch inserted in place of events.
func summariesOf(a *applied) []*node {
	if len(visibleOf(a.out)) == 0 {
		return nil
	}
	return filter(visibleOf(a.in[:a.newCount]), (*node).isSummary)
}

// summaryOf returns the summary of patch a that represents a node. This is the first summary with the branch and
// scope of the node. If there is no such summary, it is the first summary of the patch. If the patch has no summary,
// summaryOf returns nil.
func summaryOf(a *applied, of *node) *node {
	all := summariesOf(a)
	for _, n := range all {
		if of.event != nil && laneOf(n.event) == laneOf(of.event) {
			return n
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// laneOf returns a text with the branch and the scope of an event. Run numbers that follow an @ in the branch are
// omitted.
func laneOf(e *patch.Event) string {
	var elements []string
	for element := range strings.SplitSeq(e.Branch(), ".") {
		name, _, _ := strings.Cut(element, "@")
		elements = append(elements, name)
	}
	return strings.Join(elements, ".") + "\x00" + e.IsolationScope()
}
