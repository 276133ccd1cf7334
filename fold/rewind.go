package fold

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Rewind returns the patches that return the session to its state before the record with seq from, the first event of
// an invocation. The caller must log them together, in order, directly after the view's last record, and without the
// checks for orphans and pins: a rewind may reopen a call. The result is empty if no event since then is visible or
// affects the state.
//
// An event that replaced others is as old as the raw events that it covers, at any depth; an inserted event is as old
// as its patch. Patches of a group that added events count as one.
//
//   - Older events that patches removed stay hidden, even if the patch is newer.
//   - Patches that stand for older and newer events are reverted, and so are removals of newer events that keep
//     their state. A removal of both that drops the state stays.
//   - All newer events are cut, with their state.
//   - The older part of a reverted removal is cut again, with its own state policy. The older part of a
//     reverted splice that replaced events and dropped their state is cut again too.
//   - Pins are as they were.
//
// The error matches [patch.ErrInvalid] if the log holds an id twice, so that a revert cannot name its target. Rewind
// takes time linear in the nodes that all patches added and removed.
func (v View) Rewind(from uint64) ([]*patch.PatchEvent, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	w := &rewinding{
		view: v, start: v, from: from,
		ages: map[uint64]age{}, groups: map[string][]*cut{},
		drop: map[nodeID]bool{}, keep: map[nodeID]bool{},
	}
	// The plan depends on which nodes are visible, not on their content, so restored events need not be read.
	w.view.missing = &missingRecords{} // use placeholders for events
	w.classify()
	if err := w.revertMixed(); err != nil {
		return nil, err
	}
	if err := w.cutAll(w.isNewNode, patch.Drop); err != nil {
		return nil, err
	}
	if err := w.recutReverted(); err != nil {
		return nil, err
	}
	if err := w.restorePins(); err != nil {
		return nil, err
	}
	return w.patches, nil
}

// rewinding plans a rewind.
type rewinding struct {
	start    View   // the view to rewind
	view     View   // after the patches planned so far
	from     uint64 // records from this seq on are new
	patches  []*patch.PatchEvent
	reverted []*cut // patches of start that the rewind has reverted, in this order

	undone map[*cut]bool
	ages   map[uint64]age    // age of the nodes that a patch removed, by its seq
	groups map[string][]*cut // patches that count as one, because some of them added events

	drop, keep map[nodeID]bool // old nodes to cut again; keep includes those in drop
}

// age says whether a patch covers raw events from before the rewind's first record (old), and others (new).
type age struct{ hasOld, hasNew bool }

func (a age) and(b age) age { return age{a.hasOld || b.hasOld, a.hasNew || b.hasNew} }
func (a age) isMixed() bool { return a.hasOld && a.hasNew }
func (a age) isNone() bool  { return !a.hasOld && !a.hasNew }

// isCut reports whether the patch removed events and added none.
func (c *cut) isCut() bool { return !c.isRevert && c.pin == nil && !c.addsEvents }

// ageOf returns the age of the events that a record covers. A record that removed nothing covers itself.
func (w *rewinding) ageOf(seq uint64) age {
	if a := w.ages[seq]; !a.isNone() {
		return a
	}
	return age{seq < w.from, seq >= w.from}
}

// isNew reports whether all events that a record covers are new.
func (w *rewinding) isNew(seq uint64) bool { return !w.ageOf(seq).hasOld }

// classify computes which patches count as one, and the ages of patches.
func (w *rewinding) classify() {
	w.undone = w.start.patches.undone(0)
	all := w.start.patches.ascending()
	for _, c := range all {
		if c.group != "" && !c.isRevert && c.pin == nil && !w.undone[c] {
			w.groups[c.group] = append(w.groups[c.group], c)
		}
	}
	maps.DeleteFunc(w.groups, func(_ string, members []*cut) bool { return len(members) == 1 || !addEvents(members) })
	// Ages are computed in log order, because a patch removes only nodes of earlier ones. But a group counts as one
	// patch: in "5:splice (group g), 6:summarise 5's events, 7:splice (group g)", the age of 6 depends on that of g,
	// which is known only after 7. So there is a second pass.
	for range 2 {
		for _, c := range all {
			if c.isRevert || c.pin != nil {
				continue
			}
			a := age{}
			// Events that the group itself added and removed do not count: they cover the events that the group removed
			// first.
			for n := range c.removedNodes {
				if !slices.Contains(w.groups[c.group], n.cut) {
					a = a.and(w.ageOfNode(n))
				}
			}
			w.ages[c.seq] = a
			if w.undone[c] {
				continue
			}
			for _, member := range w.groups[c.group] {
				a = a.and(w.ages[member.seq])
			}
			for _, member := range w.groups[c.group] {
				w.ages[member.seq] = a
			}
		}
	}
}

// addEvents reports whether one of the patches added events.
func addEvents(patches []*cut) bool {
	return slices.ContainsFunc(patches, func(c *cut) bool { return c.addsEvents })
}

// ageOfNode returns the age of the events that a node covers. An inserted event covers itself. A revert's marker covers
// none, and a cut's marker only if it keeps the state.
func (w *rewinding) ageOfNode(n node) age {
	switch {
	case n.cut == nil || n.cut.addsEvents:
		return w.ageOf(n.seq)
	case n.cut.keepsState:
		return w.ages[n.seq]
	}
	return age{}
}

// isNewNode reports whether a node belongs to the start view and is new.
func (w *rewinding) isNewNode(n *node) bool {
	return n.seq <= w.start.seq && !n.isRevertMarker() && w.isNew(n.seq)
}

// apply applies a patch and adds it to the plan.
func (w *rewinding) apply(p *patch.PatchEvent) error {
	next, err := w.view.Apply(patch.Record{Seq: w.view.seq + 1, Patch: p})
	if err != nil {
		return err
	}
	if next.SkippedCount() > w.view.SkippedCount() {
		return fmt.Errorf("%w: a rewind to record %d needs the patch %v, which cannot be applied", patch.ErrInvalid, w.from, p)
	}
	w.view, w.patches = next, append(w.patches, p)
	return nil
}

// revertMixed reverts, newest first, patches that cover both old and new events, and cuts of new events that keep the
// state.
func (w *rewinding) revertMixed() error {
	// A mixed patch cannot stay: in "1:old, 2:new, 3:summary of both", a rewind to 2 must show 1 again and not 2. A new
	// cut that keeps the state cannot stay either: its marker would keep affecting the state, and it has no event that
	// could be cut. A mixed cut that drops the state may stay: it neither shows anything nor affects the state.
	for c := w.start.patches; c != nil; c = c.older {
		var err error
		switch {
		case c.isRevert || c.pin != nil || !w.isActive(c):
		case w.ages[c.seq].isMixed() && (!c.isCut() || c.keepsState || len(w.groups[c.group]) > 0):
			err = w.revertGroup(c)
		case c.isCut() && c.keepsState && w.isNew(c.seq):
			err = w.revert(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isActive reports whether a patch of the start view is active, after the rewind's reverts so far.
func (w *rewinding) isActive(c *cut) bool { return !w.undone[c] && !slices.Contains(w.reverted, c) }

// membersOf returns the patches that count as one with a patch, including itself.
func (w *rewinding) membersOf(c *cut) []*cut {
	if members := w.groups[c.group]; len(members) > 0 {
		return members
	}
	return []*cut{c}
}

// revertGroup reverts a patch and those that count as one with it, newest first.
func (w *rewinding) revertGroup(c *cut) error {
	for _, member := range slices.Backward(w.membersOf(c)) {
		if w.isActive(member) {
			if err := w.revert(member); err != nil {
				return err
			}
		}
	}
	return nil
}

// revert reverts a patch of the start view, after reverting the patches that block it.
func (w *rewinding) revert(c *cut) error {
	for w.isActive(c) {
		if _, _, ok := w.view.nodes.locate(c); ok {
			w.reverted = append(w.reverted, c)
			return w.applyRevert(c)
		}
		// Unlike a user, a rewind can revert all direct blockers at once, each after its own blockers. Blockers of any
		// age are reverted: in "summary of old and new, then cut of the summary", the cut is reverted too, and
		// recutReverted makes its old part again.
		must, _ := w.view.blockers(c)
		cleared := false
		for _, by := range must {
			by = by.root()                                                  // a redo has the effect of the patch that it activated
			if by.seq <= c.seq || by.seq > w.start.seq || !w.isActive(by) { // blockers are later, so this terminates
				continue
			}
			if err := w.revertGroup(by); err != nil {
				return err
			}
			cleared = true
		}
		if !cleared {
			return fmt.Errorf("%w: a rewind to record %d has to revert patch %d, which cannot be reverted", ErrBlocked, w.from, c.seq)
		}
	}
	return nil // a blocker counted as one with it
}

func (w *rewinding) applyRevert(c *cut) error {
	if named := w.view.patches.find(c.id); named != c {
		return fmt.Errorf("%w: a rewind to record %d has to revert patch %d, but its id %q is that of patch %d too", patch.ErrInvalid, w.from, c.seq, c.id, named.seq)
	}
	return w.apply(patch.NewRevert(c.id))
}

// recutReverted cuts again the old nodes that reverted cuts had removed, alone or together. Nodes removed with the drop
// policy are dropped; the others keep their state.
func (w *rewinding) recutReverted() error {
	// Reverting a mixed cut shows too much: in "1:old, 2:new, 3:cut of both" it shows 1, which was cut on purpose, so 1
	// is cut again. A summary only represented its events, so these stay visible.
	for _, c := range w.reverted {
		removal := c.isCut() || c.isSplice && !c.keepsState && w.ages[c.seq].isMixed()
		if !removal || len(w.groups[c.group]) > 0 {
			continue
		}
		for n := range c.removedNodes {
			w.keep[n.id()] = true
			if !c.keepsState {
				w.drop[n.id()] = true
			}
		}
	}
	if len(w.keep) == 0 {
		return nil
	}
	w.closeOver(w.drop)
	w.closeOver(w.keep)
	if err := w.recutDropped(); err != nil {
		return err
	}
	inKeep := func(n *node) bool { return w.keep[n.id()] && !w.drop[n.id()] }
	return w.cutAll(inKeep, patch.Keep)
}

// closeOver adds to hidden the nodes that a patch or group had removed, if all visible nodes that it added are hidden.
func (w *rewinding) closeOver(hidden map[nodeID]bool) {
	// In "3:summary of 1 and 2, 4:cut of 3", both reverted, 4 names only the summary, but it meant 1 and 2. One patch
	// can lead to the next, so repeat until nothing is added.
	for again := true; again; {
		again = false
		for _, c := range w.reverted {
			members := w.membersOf(c)
			if !allHidden(members, hidden) {
				continue
			}
			for _, member := range members {
				for n := range member.removedNodes {
					again = again || !hidden[n.id()]
					hidden[n.id()] = true
				}
			}
		}
	}
}

// allHidden reports whether all nodes that the patches added are hidden: their events, or the markers of those that
// added none.
func allHidden(members []*cut, hidden map[nodeID]bool) bool {
	events := addEvents(members)
	for _, c := range members {
		if events && !c.addsEvents {
			continue
		}
		for n := range c.addedNodes {
			if !hidden[n.id()] {
				return false
			}
		}
	}
	return true
}

// restorePins activates and deactivates pins and unpins, newest first, so that those are active that were before the
// rewind's first record.
func (w *rewinding) restorePins() error {
	before := w.start.patches.olderThan(w.from)
	undone := before.undone(0)
	for c := w.start.patches; c != nil; c = c.older {
		if c.pin == nil || c.isRevert {
			continue
		}
		// Comparing only which events are pinned is not enough: after "2:pin A, 3:pin A" and a later "revert 3", A is
		// still pinned, but a revert of 2 after the rewind would unpin it.
		var err error
		switch was, is := c.seq < w.from && !undone[c], !w.undone[c]; {
		case is && !was:
			err = w.applyRevert(c)
		case was && !is:
			err = w.revertReverts(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// revertReverts reverts the active reverts of a pin or unpin of the start view.
func (w *rewinding) revertReverts(pin *cut) error {
	for c := w.start.patches; c != pin; c = c.older {
		if c.target == pin && !w.undone[c] {
			if err := w.applyRevert(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// recutDropped cuts the old nodes that are to be dropped again. A cut includes no marker beyond its first or last
// event. If such a marker must go and carries state, its patch is reverted first, and the restored nodes are cut.
func (w *rewinding) recutDropped() error {
	goes := func(n *node) bool { return w.drop[n.id()] }
	// For example, "marker of 3 (keeps k=1), event" where both must go: a splice from the first to the last event would
	// leave the marker, and k. Reverting 3 restores the events that set k, and these can be cut. Each round reverts a
	// patch, so this terminates.
	for {
		_, outside := w.runs(goes)
		if len(outside) == 0 {
			return w.cutAll(goes, patch.Drop)
		}
		for n := range outside[0].removedNodes {
			w.drop[n.id()] = true
		}
		if err := w.applyRevert(outside[0]); err != nil {
			return err
		}
	}
}

// indexRange is a range of visible indices to cut.
type indexRange struct{ first, end int }

// runs returns the longest runs of visible nodes for which goes is true. A run may include markers, except those that
// carry state and should stay. outside has the patches whose markers carry state, should go, and are in no run.
func (w *rewinding) runs(goes func(*node) bool) (all []indexRange, outside []*cut) {
	open := false
	// A marker that should go is part of a run only if an event of the run follows it. Until then it is trailing.
	visible := 0
	var trailing []*cut
	leave := func() { outside, trailing = append(outside, trailing...), nil }
	for n := range w.view.nodes.all {
		carries := n.event == nil && len(n.carriedDelta()) > 0
		switch {
		case n.event == nil && !carries:
		case !goes(n):
			open = false
			leave()
		case carries:
			trailing = append(trailing, n.cut)
		case open:
			all[len(all)-1].end, trailing = visible+1, nil
		default:
			leave()
			all, open = append(all, indexRange{visible, visible + 1}), true
		}
		if n.event != nil {
			visible++
		}
	}
	leave()
	return all, outside
}

// cutAll cuts the runs of nodes for which goes is true.
func (w *rewinding) cutAll(goes func(*node) bool, policy patch.StatePolicy) error {
	all, _ := w.runs(goes)
	for _, run := range slices.Backward(all) { // from the end, so that earlier indices stay valid
		if err := w.apply(patch.NewSplice(run.first, run.end-run.first).WithState(policy)); err != nil {
			return err
		}
	}
	return nil
}
