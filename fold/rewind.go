package fold

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Rewind returns patches that restore the visible log and the state as they were before a record. The argument
// from is the seq of this record, which must be the first event of an invocation. The caller must log the patches
// together, in order, directly after the view's last record. The caller must not check the patches for orphans and
// pins, because a rewind may reopen a call. If no event from this record on is visible or affects the state, the
// result is empty.
//
// An event is newer if the seq of its record is at least the argument from, and older otherwise. An event that
// replaced other events is as old as the raw events that it covers, at any depth. An inserted event is as old as its
// patch. If patches of a group added events, the whole group counts as one patch.
//
//   - If a patch hid only older events, they stay hidden, even if the patch is newer.
//   - A patch that covers both older and newer events is reverted, unless it only removed events and dropped
//     their state. A patch that only removed newer events and kept their state is reverted too.
//   - All newer events are cut, and their state is dropped.
//   - If a reverted patch only removed events, its older events are cut again with the same state policy. If a
//     reverted splice replaced events and dropped their state, its older events are also cut again.
//   - The same pins and unpins are active as before the record.
//
// If an id occurs twice in the log, so that a revert cannot name its target, the error matches
// [patch.ErrInvalid]. Rewind takes time linear in the number of nodes that all patches added and removed.
func (v View) Rewind(from uint64) ([]*patch.PatchEvent, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	w := &rewindPlan{
		view: v, start: v, from: from,
		ages: map[uint64]age{}, groups: map[string][]*cut{},
		drop: map[nodeID]bool{}, keep: map[nodeID]bool{},
	}
	// The plan depends on which nodes are visible, not on their content. Restored events therefore need not be
	// read.
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

type rewindPlan struct {
	start    View   // the view to rewind
	view     View   // the view after the patches planned so far
	from     uint64 // records with this seq or a later seq are new
	patches  []*patch.PatchEvent
	reverted []*cut // patches of start that the plan reverts, in this order

	inactive map[*cut]bool
	ages     map[uint64]age    // ages of the nodes that patches removed, by the seq of the patch
	groups   map[string][]*cut // groups that count as one patch, because some of their patches added events

	drop, keep map[nodeID]bool // old nodes to cut again; keep includes the nodes in drop
}

// age says which raw events a patch covers: hasOld for events before the rewind's first record, hasNew for
// later events.
type age struct{ hasOld, hasNew bool }

func (a age) union(b age) age { return age{a.hasOld || b.hasOld, a.hasNew || b.hasNew} }
func (a age) isMixed() bool   { return a.hasOld && a.hasNew }
func (a age) isEmpty() bool   { return !a.hasOld && !a.hasNew }

// isCut reports whether the patch removed events and added none.
func (c *cut) isCut() bool { return !c.isRevert && c.pin == nil && !c.addsEvents }

// ageOf returns the age of the events that a record covers. A record that removed nothing covers itself.
func (w *rewindPlan) ageOf(seq uint64) age {
	if a := w.ages[seq]; !a.isEmpty() {
		return a
	}
	return age{seq < w.from, seq >= w.from}
}

// isNew reports whether all events that a record covers are new.
func (w *rewindPlan) isNew(seq uint64) bool { return !w.ageOf(seq).hasOld }

// classify finds the groups that count as one patch, and computes the ages of patches.
func (w *rewindPlan) classify() {
	w.inactive = w.start.patches.inactive(0)
	all := w.start.patches.ascending()
	for _, c := range all {
		if c.group != "" && !c.isRevert && c.pin == nil && !w.inactive[c] {
			w.groups[c.group] = append(w.groups[c.group], c)
		}
	}
	maps.DeleteFunc(w.groups, func(_ string, members []*cut) bool { return len(members) == 1 || !addEvents(members) })
	// A patch removes only nodes of earlier patches, so ages are computed in log order. A group, however,
	// counts as one patch. In "5:splice (group g), 6:summarise 5's events, 7:splice (group g)", the age of 6
	// depends on the age of g, which is complete only after 7. A second iteration is therefore necessary.
	for range 2 {
		for _, c := range all {
			if c.isRevert || c.pin != nil {
				continue
			}
			a := age{}
			// Events that the group itself added and removed do not count. They cover events that the group
			// removed before.
			for n := range c.removedNodes {
				if !slices.Contains(w.groups[c.group], n.cut) {
					a = a.union(w.ageOfNode(n))
				}
			}
			w.ages[c.seq] = a
			if w.inactive[c] {
				continue
			}
			for _, member := range w.groups[c.group] {
				a = a.union(w.ages[member.seq])
			}
			for _, member := range w.groups[c.group] {
				w.ages[member.seq] = a
			}
		}
	}
}

func addEvents(patches []*cut) bool {
	return slices.ContainsFunc(patches, func(c *cut) bool { return c.addsEvents })
}

// ageOfNode returns the age of the events that a node covers. An inserted event covers itself. The marker of a
// cut covers events only if the cut keeps the state. The marker of a revert covers no events.
func (w *rewindPlan) ageOfNode(n node) age {
	switch {
	case n.cut == nil || n.cut.addsEvents:
		return w.ageOf(n.seq)
	case n.cut.keepsState:
		return w.ages[n.seq]
	}
	return age{}
}

// isNewNode reports whether a node belongs to the start view and is new.
func (w *rewindPlan) isNewNode(n *node) bool {
	return n.seq <= w.start.seq && !n.isRevertMarker() && w.isNew(n.seq)
}

// apply applies a patch and adds it to the plan.
func (w *rewindPlan) apply(p *patch.PatchEvent) error {
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

// revertMixed reverts the patches that cover both old and new events, and the cuts of new events that keep the
// state. It starts with the newest.
func (w *rewindPlan) revertMixed() error {
	// A mixed patch cannot stay. In "1:old, 2:new, 3:summary of both", a rewind to 2 must show 1 again, but not
	// 2. A new cut that keeps the state cannot stay either. Its marker would still affect the state, and it has
	// no event that could be cut. A mixed cut that drops the state may stay. It shows no event and does not
	// affect the state.
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

// isActive reports whether a patch of the start view is still active after the reverts planned so far.
func (w *rewindPlan) isActive(c *cut) bool { return !w.inactive[c] && !slices.Contains(w.reverted, c) }

// membersOf returns the patches that count as one patch with c, including c.
func (w *rewindPlan) membersOf(c *cut) []*cut {
	if members := w.groups[c.group]; len(members) > 0 {
		return members
	}
	return []*cut{c}
}

// revertGroup reverts a patch and the patches that count as one with it, newest first.
func (w *rewindPlan) revertGroup(c *cut) error {
	for _, member := range slices.Backward(w.membersOf(c)) {
		if w.isActive(member) {
			if err := w.revert(member); err != nil {
				return err
			}
		}
	}
	return nil
}

// revert reverts a patch of the start view. It first reverts the patches that block it.
func (w *rewindPlan) revert(c *cut) error {
	for w.isActive(c) {
		if _, _, ok := w.view.nodes.locate(c); ok {
			w.reverted = append(w.reverted, c)
			return w.applyRevert(c)
		}
		// A user reverts one blocker at a time. A rewind can revert all direct blockers, each after its own
		// blockers, whatever their age. In "summary of old and new, then cut of the summary", the cut is
		// reverted too. The old part of the cut is cut again in recutReverted.
		blockers, _ := w.view.blockers(c)
		reverted := false
		for _, by := range blockers {
			by = by.root()                                                  // a redo has the effect of the patch that it redoes
			if by.seq <= c.seq || by.seq > w.start.seq || !w.isActive(by) { // blockers are later, so the recursion terminates
				continue
			}
			if err := w.revertGroup(by); err != nil {
				return err
			}
			reverted = true
		}
		if !reverted {
			return fmt.Errorf("%w: a rewind to record %d must revert patch %d, which cannot be reverted", ErrBlocked, w.from, c.seq)
		}
	}
	return nil // c was reverted together with a blocker in its group
}

func (w *rewindPlan) applyRevert(c *cut) error {
	if found := w.view.patches.find(c.id); found != c {
		return fmt.Errorf("%w: a rewind to record %d must revert patch %d, but its id %q is also the id of patch %d", patch.ErrInvalid, w.from, c.seq, c.id, found.seq)
	}
	return w.apply(patch.NewRevert(c.id))
}

// recutReverted cuts again the old nodes that reverted cuts had removed, alone or together. If a cut dropped
// the state, the state of its nodes is dropped. Otherwise it is kept.
func (w *rewindPlan) recutReverted() error {
	// Reverting a mixed cut shows too much. In "1:old, 2:new, 3:cut of both", it shows 1, which the author
	// removed deliberately. Event 1 is therefore cut again. The events that a summary represented stay visible.
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
	w.addCovered(w.drop)
	w.addCovered(w.keep)
	if err := w.recutDropped(); err != nil {
		return err
	}
	isKeptOnly := func(n *node) bool { return w.keep[n.id()] && !w.drop[n.id()] }
	return w.cutAll(isKeptOnly, patch.Keep)
}

// addCovered adds nodes to hidden. If all nodes that a reverted patch or group added are hidden, it adds the
// nodes that this patch or group removed.
func (w *rewindPlan) addCovered(hidden map[nodeID]bool) {
	// In "3:summary of 1 and 2, 4:cut of 3", both reverted, patch 4 names only the summary, but its author
	// meant 1 and 2. One patch can lead to another, so the loop continues until nothing is added.
	for changed := true; changed; {
		changed = false
		for _, c := range w.reverted {
			members := w.membersOf(c)
			if !allHidden(members, hidden) {
				continue
			}
			for _, member := range members {
				for n := range member.removedNodes {
					changed = changed || !hidden[n.id()]
					hidden[n.id()] = true
				}
			}
		}
	}
}

// allHidden reports whether all nodes that the patches added are hidden. If the patches added events, only the
// events count. Otherwise the markers count.
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

// restorePins reverts and redoes pins and unpins, newest first. Afterwards, the same pins and unpins are active
// as before the rewind's first record.
func (w *rewindPlan) restorePins() error {
	before := w.start.patches.olderThan(w.from)
	inactive := before.inactive(0)
	for c := w.start.patches; c != nil; c = c.older {
		if c.pin == nil || c.isRevert {
			continue
		}
		// It is not sufficient to compare which events are pinned. After "2:pin A, 3:pin A" and a later "revert
		// 3", A is still pinned. But if 3 stayed reverted, a revert of 2 after the rewind would unpin A.
		var err error
		switch wasActive, isActive := c.seq < w.from && !inactive[c], !w.inactive[c]; {
		case isActive && !wasActive:
			err = w.applyRevert(c)
		case wasActive && !isActive:
			err = w.revertReverts(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// revertReverts reverts the active reverts of a pin or unpin of the start view.
func (w *rewindPlan) revertReverts(pin *cut) error {
	for c := w.start.patches; c != pin; c = c.older {
		if c.target == pin && !w.inactive[c] {
			if err := w.applyRevert(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// recutDropped cuts the old nodes whose state is dropped. A cut includes no marker beyond its first or last
// event. If such a marker carries state and must be removed, its patch is reverted first. The restored nodes
// are then cut.
func (w *rewindPlan) recutDropped() error {
	isDropped := func(n *node) bool { return w.drop[n.id()] }
	// An example is "marker of 3 (carries k=1), event", where both must be removed. A splice from the first to
	// the last event would leave the marker, and k with it. A revert of 3 restores the events that set k, and
	// these can be cut. Each iteration reverts a patch, so the loop terminates.
	for {
		_, outside := w.runs(isDropped)
		if len(outside) == 0 {
			return w.cutAll(isDropped, patch.Drop)
		}
		for n := range outside[0].removedNodes {
			w.drop[n.id()] = true
		}
		if err := w.applyRevert(outside[0]); err != nil {
			return err
		}
	}
}

type indexRange struct{ first, end int }

// runs returns the longest runs of visible nodes for which the function selected returns true. A run may include
// markers. If a marker carries state, a run includes it only if selected returns true for the marker. If selected
// returns true for such a marker but no run includes it, outside contains its patch.
func (w *rewindPlan) runs(selected func(*node) bool) (all []indexRange, outside []*cut) {
	open := false
	// A marker that must be removed belongs to a run only if an event of the run follows. Until then, it is in
	// trailing.
	visible := 0
	var trailing []*cut
	flushTrailing := func() { outside, trailing = append(outside, trailing...), nil }
	for n := range w.view.nodes.all {
		carriesState := n.event == nil && len(n.carriedDelta()) > 0
		switch {
		case n.event == nil && !carriesState:
		case !selected(n):
			open = false
			flushTrailing()
		case carriesState:
			trailing = append(trailing, n.cut)
		case open:
			all[len(all)-1].end, trailing = visible+1, nil
		default:
			flushTrailing()
			all, open = append(all, indexRange{visible, visible + 1}), true
		}
		if n.event != nil {
			visible++
		}
	}
	flushTrailing()
	return all, outside
}

// cutAll cuts the runs of nodes for which the function selected returns true.
func (w *rewindPlan) cutAll(selected func(*node) bool, policy patch.StatePolicy) error {
	all, _ := w.runs(selected)
	for _, run := range slices.Backward(all) { // start with the last run, so that earlier indices stay valid
		if err := w.apply(patch.NewSplice(run.first, run.end-run.first).WithState(policy)); err != nil {
			return err
		}
	}
	return nil
}
