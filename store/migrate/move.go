package migrate

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// moveLeaf moves the leaf to the given node. A nil node means the start of the conversation. moveLeaf hides the
// events that are not on the path to the new leaf and makes the events on the path visible. Entries without content
// are ignored.
func (t *tree) moveLeaf(to *node, at entry) error {
	if to == t.leaf {
		return nil
	}
	t.onPath = map[*node]bool{}
	ancestor, first, err := t.markPaths(to)
	if err != nil {
		return err
	}
	restoredLine, err := t.revertChanges(first, at)
	if err != nil {
		return err
	}
	commonLine := 0 // line up to which all visible events are on the new path
	if ancestor != nil {
		commonLine = ancestor.line
	}
	if restoredLine > 0 && restoredLine <= commonLine { // restored events may not be on the common path
		commonLine = restoredLine - 1
		for n := ancestor; n != nil; n = n.parent {
			t.onPath[n] = true
		}
		if ancestor != nil {
			if err := t.addSteps(ancestor.depth); err != nil {
				return err
			}
		}
	}
	if err := t.hideOffPath(commonLine, at); err != nil {
		return err
	}
	if to == nil || to.lastSummary == nil || to.lastSummary.summaryChange > 0 {
		return nil
	}
	return t.reinsertSummary(to.lastSummary, at)
}

// reinsertSummary inserts a summary again after the summary was reverted. The event gets another id.
func (t *tree) reinsertSummary(n *node, at entry) error {
	count, _, err := t.coveredCount(n.summarySource.kept, n.summarySource.requireKept, n.line)
	if err != nil || count == 0 {
		return err
	}
	if err := t.addSteps(patch.Record{Event: n.summarySource.event}.Size()); err != nil {
		return err
	}
	e, err := patch.NewEvent(patch.Fields{
		ID: t.newID("summary again"), InvocationID: n.summarySource.event.InvocationID(), Author: n.summarySource.event.Author(),
		Timestamp: n.summarySource.event.Timestamp(), Content: n.summarySource.event.Content(),
	})
	if err != nil {
		return err
	}
	n.eventID = e.ID()
	t.events[n.eventID] = n
	return t.summarise(n, count, e, didRewind, at)
}

// markPaths marks the paths from the current leaf and from the new leaf up to their common ancestor. It returns the
// ancestor. The result first is the number of the first change that contradicts the new path, or 0.
func (t *tree) markPaths(to *node) (ancestor *node, first int, err error) {
	a, b := t.leaf, to
	steps := 0
	for a != b {
		steps++
		var change int
		if b == nil || a != nil && a.depth >= b.depth {
			t.onPath[a], change = false, a.summaryChange
			a = a.parent
		} else {
			t.onPath[b], change = true, b.hiddenBy
			b = b.parent
		}
		if change > 0 && (first == 0 || change < first) {
			first = change
		}
	}
	return a, first, t.addSteps(steps)
}

// revertChanges reverts the changes whose number is at least first. If first is 0, it reverts none. It returns the
// first line of the restored events, or 0 if no event was restored.
func (t *tree) revertChanges(first int, at entry) (line int, err error) {
	if first == 0 {
		return 0, nil
	}
	group := ""
	if len(t.changes) > first || len(t.changes[first-1].patches) > 1 {
		group = t.newID("group of reverts")
	}
	for len(t.changes) >= first {
		c := t.changes[len(t.changes)-1]
		t.changes = t.changes[:len(t.changes)-1]
		if err := t.addSteps(len(c.hides) + len(c.patches)); err != nil {
			return 0, err
		}
		for _, id := range slices.Backward(c.patches) {
			if _, err := t.appendPatch(patch.NewRevert(id), didRewind, at, group); err != nil {
				return 0, err
			}
		}
		for _, n := range c.hides {
			n.hiddenBy = 0
			if line == 0 || n.line < line {
				line = n.line
			}
		}
		if c.summary != nil {
			c.summary.summaryChange = 0
		}
	}
	return line, nil
}

// hideOffPath hides events in lines after commonLine that have content and are not on the new path. It also hides
// events without content between them.
func (t *tree) hideOffPath(commonLine int, at entry) error {
	begin := t.view.Len()
	for ; begin > 0; begin-- {
		n := t.events[t.view.At(begin-1).ID()]
		if n != nil && n.line <= commonLine {
			break
		}
	}
	if err := t.addSteps(t.view.Len() - begin); err != nil {
		return err
	}
	type run struct {
		start, count int
		hides        []*node
	}
	var runs []run
	open := false
	for i := begin; i < t.view.Len(); i++ {
		n := t.events[t.view.At(i).ID()]
		switch {
		case n == nil:
		case t.staysVisible(n, commonLine):
			t.onPath[n] = true
			open = false
		case n.content && !open:
			runs = append(runs, run{i, 1, []*node{n}})
			open = true
		case n.content:
			r := &runs[len(runs)-1]
			r.count, r.hides = i-r.start+1, append(r.hides, n)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	group := ""
	if len(runs) > 1 {
		group = t.newID("group of cuts")
	}
	c := change{}
	for _, r := range slices.Backward(runs) {
		id, err := t.appendPatch(patch.NewSplice(r.start, r.count), didRewind, at, group)
		if err != nil {
			return err
		}
		c.patches, c.hides = append(c.patches, id), append(c.hides, r.hides...)
	}
	t.addChange(c)
	return nil
}

func (t *tree) addChange(c change) {
	t.changes = append(t.changes, c)
	for _, n := range c.hides {
		n.hiddenBy = len(t.changes)
	}
	if c.summary != nil {
		c.summary.summaryChange = len(t.changes)
	}
}

// staysVisible reports whether a visible node, whose line is after commonLine, stays visible. A node stays visible
// if it is on the new path. It also stays if the first piece of its message stays, or if the call that it answers
// stays. The reason is that a program may write a message in pieces, and answer the calls in the pieces separately.
func (t *tree) staysVisible(n *node, commonLine int) bool {
	if t.onPath[n] {
		return true
	}
	stays := func(other *node) bool {
		if other == nil || other == n || other.hiddenBy > 0 {
			return false
		}
		onWay, passed := t.onPath[other]
		return onWay || !passed && other.line <= commonLine
	}
	return stays(t.firstPieces[n.messageID]) || slices.ContainsFunc(n.callers, stays)
}
