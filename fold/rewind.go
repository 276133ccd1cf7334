package fold

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Rewind returns the patches that take the session back to where it was before the
// record with seq from: the first event of the invocation to rewind to. They are to be
// logged together, in their order, directly after the view's last record, and without
// being held to the rules for function calls and pins: a rewind may reopen a call. There
// are none if nothing is left of what came since.
//
// What a patch put in is as old as the raw events that it took out, at any depth, and as
// an event that it inserted without taking any out; patches of a group that put in
// events are one in this.
//
//   - What patches took out of older events stays out, also if they came later.
//   - What stands for older and newer events alike is reverted, and so is a cut of newer
//     ones that keeps their state. A cut of both that drops the state stays.
//   - All that is newer is cut, and its state with it.
//   - The older part of a cut that was reverted is cut again, with its own policy. So is
//     that of a splice that had put others in the place of what it dropped.
//   - Pins are as they were.
//
// The error matches [patch.ErrInvalid] where a log holds an id twice and the patch that has to be reverted
// cannot be named. Rewind takes time linear in all that patches ever did.
func (v View) Rewind(from uint64) ([]*patch.PatchEvent, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	w := &rewinding{
		view: v, start: v, from: from,
		ages: map[uint64]age{}, groups: map[string][]*cut{},
		drop: map[nodeID]bool{}, keep: map[nodeID]bool{},
	}
	w.view.plan = &needs{} // the bodies do not matter
	w.learn()
	if err := w.revertMixed(); err != nil {
		return nil, err
	}
	if err := w.cutAll(w.goes, patch.Drop); err != nil {
		return nil, err
	}
	if err := w.cutAgain(); err != nil {
		return nil, err
	}
	if err := w.unpin(); err != nil {
		return nil, err
	}
	return w.patches, nil
}

// rewinding is a rewind in the making.
type rewinding struct {
	start    View   // to be rewound
	view     View   // with what the patches so far do
	from     uint64 // records from this seq on are new
	patches  []*patch.PatchEvent
	reverted []*cut // of the view's patches, none a revert, in the order of their reverts

	undone map[*cut]bool
	ages   map[uint64]age    // by seq of a patch, how old what it took out is
	groups map[string][]*cut // patches that are one, since some of them put in events

	drop, keep map[nodeID]bool // old nodes to cut again; keep has those to drop too
}

// age is what a patch stands for: raw events before the rewind's first record, others.
type age struct{ hasOld, hasNew bool }

func (a age) and(b age) age { return age{a.hasOld || b.hasOld, a.hasNew || b.hasNew} }
func (a age) isMixed() bool { return a.hasOld && a.hasNew }
func (a age) isNone() bool  { return !a.hasOld && !a.hasNew }

// isCut reports whether the patch took out events and put none in.
func (c *cut) isCut() bool { return !c.revert && c.pin == nil && !c.puts }

// ageOf returns how old what a record stands for is. A record that took nothing out is as
// old as itself.
func (w *rewinding) ageOf(seq uint64) age {
	if a := w.ages[seq]; !a.isNone() {
		return a
	}
	return age{seq < w.from, seq >= w.from}
}

// isNew reports whether all that a record stands for is new.
func (w *rewinding) isNew(seq uint64) bool { return !w.ageOf(seq).hasOld }

// learn finds out which patches are one, and how old what patches put in is.
func (w *rewinding) learn() {
	w.undone = w.start.patches.undone(0)
	all := w.start.patches.ascending()
	for _, c := range all {
		if c.group != "" && !c.revert && c.pin == nil && !w.undone[c] {
			w.groups[c.group] = append(w.groups[c.group], c)
		}
	}
	maps.DeleteFunc(w.groups, func(_ string, members []*cut) bool { return len(members) == 1 || !putEvents(members) })
	for range 2 { // a patch before a group's last may have taken out what the group put in
		for _, c := range all {
			if c.revert || c.pin != nil {
				continue
			}
			a := age{}
			for n := range c.tookOut {
				if !slices.Contains(w.groups[c.group], n.cut) { // the patches that are one put it in themselves
					a = a.and(w.standsFor(n))
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

// putEvents reports whether one of the patches put in events.
func putEvents(patches []*cut) bool {
	return slices.ContainsFunc(patches, func(c *cut) bool { return c.puts })
}

// standsFor returns how old the events are that a node stands for. An event that a patch
// inserted stands for itself; the marker of a revert stands for nothing, and that of a cut
// only if it keeps their state.
func (w *rewinding) standsFor(n node) age {
	switch {
	case n.cut == nil || n.cut.puts:
		return w.ageOf(n.seq)
	case n.cut.keep:
		return w.ages[n.seq]
	}
	return age{}
}

// goes reports whether a node is one of the view's, and none of the rewind's, and new.
func (w *rewinding) goes(n *node) bool {
	return n.seq <= w.start.seq && !n.isRevertMarker() && w.isNew(n.seq)
}

// do applies a patch to the view in the making.
func (w *rewinding) do(p *patch.PatchEvent) error {
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

// revertMixed reverts, newest first, what stands for older and newer events alike, in
// sight or not, and cuts that keep the state of newer ones.
func (w *rewinding) revertMixed() error {
	for c := w.start.patches; c != nil; c = c.older {
		var err error
		switch {
		case c.revert || c.pin != nil || !w.stands(c):
		case w.ages[c.seq].isMixed() && (!c.isCut() || c.keep || len(w.groups[c.group]) > 0):
			err = w.revertOne(c)
		case c.isCut() && c.keep && w.isNew(c.seq):
			err = w.revert(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stands reports whether one of the view's patches has not been taken back, by the rewind
// either.
func (w *rewinding) stands(c *cut) bool { return !w.undone[c] && !slices.Contains(w.reverted, c) }

// membersOf returns the patches that are one with a patch, itself among them.
func (w *rewinding) membersOf(c *cut) []*cut {
	if members := w.groups[c.group]; len(members) > 0 {
		return members
	}
	return []*cut{c}
}

// revertOne reverts a patch and those that are one with it, newest first.
func (w *rewinding) revertOne(c *cut) error {
	for _, member := range slices.Backward(w.membersOf(c)) {
		if w.stands(member) {
			if err := w.revert(member); err != nil {
				return err
			}
		}
	}
	return nil
}

// revert reverts one of the view's patches, and first the patches that block that.
func (w *rewinding) revert(c *cut) error {
	for w.stands(c) {
		if _, _, ok := w.view.nodes.stretch(c); ok {
			w.reverted = append(w.reverted, c)
			return w.doRevert(c)
		}
		must, _ := w.view.obstacles(c)
		cleared := false
		for _, by := range must {
			by = by.root()                                                // what a redo did is that of the patch that it made to stand again
			if by.seq <= c.seq || by.seq > w.start.seq || !w.stands(by) { // a blocking patch is later; so this ends
				continue
			}
			if err := w.revertOne(by); err != nil {
				return err
			}
			cleared = true
		}
		if !cleared {
			return fmt.Errorf("%w: a rewind to record %d has to revert patch %d, which cannot be reverted", ErrBlocked, w.from, c.seq)
		}
	}
	return nil // something in the way was one with it
}

func (w *rewinding) doRevert(c *cut) error {
	if named := w.view.patches.find(c.id); named != c {
		return fmt.Errorf("%w: a rewind to record %d has to revert patch %d, but its id %q is that of patch %d too", patch.ErrInvalid, w.from, c.seq, c.id, named.seq)
	}
	return w.do(patch.NewRevert(c.id))
}

// cutAgain cuts what reverted cuts had taken out, each alone or several together. What
// they dropped without the help of one that keeps is dropped, and the rest keeps its state.
func (w *rewinding) cutAgain() error {
	for _, c := range w.reverted {
		removal := c.isCut() || c.splice && !c.keep && w.ages[c.seq].isMixed()
		if !removal || len(w.groups[c.group]) > 0 {
			continue
		}
		for n := range c.tookOut {
			w.keep[n.id()] = true
			if !c.keep {
				w.drop[n.id()] = true
			}
		}
	}
	if len(w.keep) == 0 {
		return nil
	}
	w.close(w.drop)
	w.close(w.keep)
	if err := w.dropAgain(); err != nil {
		return err
	}
	inKeep := func(n *node) bool { return w.keep[n.id()] && !w.drop[n.id()] }
	return w.cutAll(inKeep, patch.Keep)
}

// close adds to hidden nodes what patches had taken out, or groups, all of whose visible
// nodes are among them.
func (w *rewinding) close(hidden map[nodeID]bool) {
	for again := true; again; {
		again = false
		for _, c := range w.reverted {
			members := w.membersOf(c)
			if !allHidden(members, hidden) {
				continue
			}
			for _, member := range members {
				for n := range member.tookOut {
					again = again || !hidden[n.id()]
					hidden[n.id()] = true
				}
			}
		}
	}
}

// allHidden reports whether all nodes that the patches put in are hidden: their events, or
// where they put in none, their markers.
func allHidden(members []*cut, hidden map[nodeID]bool) bool {
	events := putEvents(members)
	for _, c := range members {
		if events && !c.puts {
			continue
		}
		for n := range c.in {
			if !hidden[n.id()] {
				return false
			}
		}
	}
	return true
}

// unpin takes back what pins and unpins have changed since: for each event that is not
// pinned as it was, newest first, until it is.
func (w *rewinding) unpin() error {
	before := w.start.patches.before(w.from)
	undone := before.undone(0)
	for l := w.start.patches; l != before; l = l.older {
		if l.pin == nil {
			continue
		}
		node := l.pin.node
		for was := before.pins(node, undone); w.view.pins.has(node) != was; {
			if err := w.doRevert(w.newestPin(node)); err != nil {
				return err
			}
		}
	}
	return nil
}

// newestPin returns the newest of the view's patches about the pin of a node that stands.
func (w *rewinding) newestPin(node nodeID) *cut {
	undone := w.view.patches.undone(0)
	for c := w.start.patches; c != nil; c = c.older {
		if c.pin != nil && c.pin.node == node && !undone[c] {
			return c
		}
	}
	return nil
}

// dropAgain cuts the old nodes that are to be dropped again. A cut takes no marker beyond
// its first or last event: where such a marker, of those that are to go, carries state,
// its patch is reverted first, and what that brings back goes.
func (w *rewinding) dropAgain() error {
	goes := func(n *node) bool { return w.drop[n.id()] }
	for {
		_, outside := w.runs(goes)
		if len(outside) == 0 {
			return w.cutAll(goes, patch.Drop)
		}
		for n := range outside[0].tookOut {
			w.drop[n.id()] = true
		}
		if err := w.doRevert(outside[0]); err != nil {
			return err
		}
	}
}

// indices is a run of nodes to cut, as visible indices.
type indices struct{ first, end int }

// runs returns the runs of visible nodes that are to go, as long as can be. Markers belong
// to any run, but none that carries state and is not to go. Of those that carry and are to
// go, outside are the patches whose markers stand in no run.
func (w *rewinding) runs(goes func(*node) bool) (all []indices, outside []*cut) {
	open := false
	visible := 0
	var trailing []*cut
	leave := func() { outside, trailing = append(outside, trailing...), nil }
	for n := range w.view.nodes.all {
		carries := n.event == nil && len(n.carries()) > 0
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
			all, open = append(all, indices{visible, visible + 1}), true
		}
		if n.event != nil {
			visible++
		}
	}
	leave()
	return all, outside
}

// cutAll cuts the runs of nodes that are to go.
func (w *rewinding) cutAll(goes func(*node) bool, policy patch.StatePolicy) error {
	all, _ := w.runs(goes)
	for _, run := range slices.Backward(all) { // so that earlier indices stay
		if err := w.do(patch.NewSplice(run.first, run.end-run.first).WithState(policy)); err != nil {
			return err
		}
	}
	return nil
}
