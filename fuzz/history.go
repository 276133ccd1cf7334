package fuzz

import (
	"cmp"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// History returns the visible log with what each summary stands for in its place, at any
// depth: what people should see. The slice is the caller's own.
func (r *Reference) History() []*patch.Event {
	// Which summaries are in sight decides what the markers of their groups stand for, and
	// behind those there may be others.
	inSight := map[*node]bool{}
	for {
		known := len(inSight)
		opened := map[*applied]bool{}
		shown := r.historyOf(r.nodes, inSight, opened)
		// What a group took out without a summary belongs to its summaries, wherever its marker is.
		apart := false
		for _, a := range slices.Backward(r.applied) { // the newest first: older ones' markers are in its run
			if a.group != "" && a.isCut() && !a.drops && !opened[a] && r.stands(a) {
				told := toldOf(a, inSight)
				apart = apart || len(told) > 0
				shown = append(shown, r.historyOf(told, inSight, opened)...)
			}
		}
		if len(inSight) > known {
			continue
		}
		for s := range inSight {
			if apart || len(summariesOf(s.by)) > 1 { // which share a run, and may stand apart
				slices.SortStableFunc(shown, func(a, b *node) int { return cmp.Compare(placeOf(a), placeOf(b)) })
				break
			}
		}
		var events []*patch.Event
		for _, n := range shown {
			events = append(events, n.event)
		}
		return events
	}
}

// historyOf returns the nodes that have something to show, or stand for what has, and notes
// which cuts of groups it has looked into.
func (r *Reference) historyOf(nodes []*node, inSight map[*node]bool, opened map[*applied]bool) (shown []*node) {
	for _, n := range nodes {
		var told []*node
		switch {
		case n.by == nil && n.event == nil:
			continue
		case n.event == nil:
			if n.by.of != nil || n.by.drops {
				continue
			}
			if told = toldOf(n.by, inSight); len(told) > 0 {
				opened[n.by] = true
			} else if n.by.wordless && !isToldGroup(n.by, inSight) {
				told = n.by.out
			}
		case isSummary(n) && n.by != nil && len(visibleOf(n.by.out)) > 0:
			inSight[n] = true
			for _, out := range n.by.out {
				if summaryOf(n.by, out) == n {
					told = append(told, out)
				}
			}
		default:
			shown = append(shown, n)
			continue
		}
		shown = append(shown, r.historyOf(told, inSight, opened)...)
	}
	return shown
}

// toldOf returns which of the nodes that a patch took out belong to summaries of its group that
// are in sight.
func toldOf(a *applied, inSight map[*node]bool) (told []*node) {
	for _, out := range a.out {
		for s := range inSight {
			if a.group != "" && s.by.group == a.group && summaryOf(s.by, out) == s {
				told = append(told, out)
				break
			}
		}
	}
	return told
}

// isToldGroup reports whether a summary of the patch's group is in sight.
func isToldGroup(a *applied, inSight map[*node]bool) bool {
	for s := range inSight {
		if a.group != "" && s.by.group == a.group {
			return true
		}
	}
	return false
}

func isSummary(n *node) bool { return n.put || n.event.IsSummary() }

// summariesOf returns the summaries that a patch put in.
func summariesOf(a *applied) (all []*node) {
	for _, n := range visibleOf(a.in[:a.made]) {
		if isSummary(n) {
			all = append(all, n)
		}
	}
	return all
}

// summaryOf returns the summary of a patch that stands for a node which it took out.
func summaryOf(a *applied, out *node) *node {
	all := summariesOf(a)
	for _, n := range all {
		if out.event != nil && laneOf(n.event) == laneOf(out.event) {
			return n
		}
	}
	return all[0]
}

// laneOf names the branch, without what follows an @, and the scope of an event.
func laneOf(e *patch.Event) string {
	var elements []string
	for element := range strings.SplitSeq(e.Branch(), ".") {
		name, _, _ := strings.Cut(element, "@")
		elements = append(elements, name)
	}
	return strings.Join(elements, ".") + "\x00" + e.IsolationScope()
}

// placeOf is the seq of the record that a node is. What a patch put in has the place of the
// last node that it took out, or of the one before.
func placeOf(n *node) uint64 {
	switch {
	case n == nil:
		return 0
	case n.by == nil:
		return n.seq
	case len(n.by.out) > 0:
		return placeOf(n.by.out[len(n.by.out)-1])
	}
	return placeOf(n.by.before)
}
