package fold

import (
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Rewind returns the patches that take the session back to where it was before the
// record with seq from: the first event of the invocation to rewind to (semantics,
// section 9). They are to be logged together, in their order, directly after the view's
// last record, and without being held to the rules for function calls: a rewind may
// reopen a call. There are none if nothing is left of what came since.
//
//   - What patches took out of older events stays out, also if they came later.
//   - A summary or replacement that stands for older and newer events alike is reverted.
//     So is a cut that keeps the state, and its older part is cut again, with keep. A cut
//     that drops stays, unless it took out only some of what such a patch had put in.
//   - All that is newer is cut, and its state with it.
//
// Errors match [ErrSource], or [patch.ErrInvalid] where a log holds an id twice and the
// patch that has to be reverted cannot be named. Rewind takes time linear in all that
// patches ever did.
func (v View) Rewind(from uint64) ([]*patch.PatchEvent, error) {
	if err := v.makeWhole(); err != nil {
		return nil, err
	}
	w := &rewinding{view: v, from: from, last: v.seq, known: map[uint64]known{}, dropped: map[nodeID]bool{}, kept: map[nodeID]bool{}}
	for _, c := range v.patches.ascending() {
		w.learn(c)
	}
	if err := w.revertMixed(); err != nil {
		return nil, err
	}
	for _, c := range w.reverted {
		if c.isCut() {
			w.cover(c)
		}
	}
	if err := w.cut(w.kept, patch.Keep); err != nil {
		return nil, err
	}
	if err := w.cutNew(); err != nil {
		return nil, err
	}
	return w.patches, nil
}

// isCut reports whether the patch took events out and put none in.
func (c *cut) isCut() bool { return !c.revert && !c.puts }

// rewinding is a rewind in the making.
type rewinding struct {
	view     View   // with what the patches so far do
	from     uint64 // what is from here on is new
	last     uint64 // of the view's patches, before the rewind's own
	patches  []*patch.PatchEvent
	reverted []*cut // of the view's patches, in the order of their reverts
	known    map[uint64]known

	kept, dropped map[nodeID]bool // old nodes to hide again, by what becomes of their state
}

// known is a patch, and how old what it put in is.
type known struct {
	*cut
	hasOld, hasNew bool // it stands for raw events before from; for others
}

// learn finds out what a patch stands for: the raw events that it took out, at any depth.
// What a revert brought back stands for itself, and so do events that a patch put in
// without taking any out, at that patch's seq. Patches must come in their order.
func (w *rewinding) learn(c *cut) {
	k := known{cut: c}
	for n := range c.tookOut {
		switch {
		case n.cut == nil:
			k.hasOld = k.hasOld || n.seq < w.from
			k.hasNew = k.hasNew || n.seq >= w.from
		case !n.cut.revert:
			inner := w.known[n.seq]
			if !inner.hasOld && !inner.hasNew && inner.puts { // what was inserted stands for itself
				inner.hasOld, inner.hasNew = n.seq < w.from, n.seq >= w.from
			}
			k.hasOld = k.hasOld || inner.hasOld
			k.hasNew = k.hasNew || inner.hasNew
		}
	}
	w.known[c.seq] = k
}

func (k known) isMixed() bool { return k.hasOld && k.hasNew }

// isNew reports whether a node is to go.
func (w *rewinding) isNew(n *node) bool {
	switch k := w.known[n.seq]; {
	case n.cut == nil:
		return n.seq >= w.from
	case n.cut.revert || n.seq > w.last:
		return false
	case !k.hasOld && !k.hasNew:
		return n.seq >= w.from
	default:
		return !k.hasOld
	}
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

// revertMixed reverts, newest first, what stands for older and newer events alike.
func (w *rewinding) revertMixed() error {
	for {
		var newest *cut
		for n := range w.view.root.all {
			if n.cut == nil || n.cut.revert || newest != nil && n.seq <= newest.seq {
				continue
			}
			if k := w.known[n.seq]; k.isMixed() && !(k.isCut() && !k.keep) {
				newest = k.cut
			}
		}
		if newest == nil {
			return nil
		}
		if err := w.revert(newest); err != nil {
			return err
		}
	}
}

// revert reverts one of the view's patches, and first what is in the way of that.
func (w *rewinding) revert(c *cut) error {
	for {
		if _, _, ok := w.view.root.stretch(c); ok {
			break
		}
		by := w.view.blocking(c)
		if by == nil || by.seq <= c.seq || by.seq > w.last { // what is in the way is later; so this ends
			return fmt.Errorf("%w: a rewind to record %d has to revert patch %d, which cannot be reverted", ErrBlocked, w.from, c.seq)
		}
		if err := w.revert(by); err != nil {
			return err
		}
	}
	if named := w.view.patches.find(c.id); named != c {
		return fmt.Errorf("%w: a rewind to record %d has to revert patch %d, but its id %q is that of patch %d too", patch.ErrInvalid, w.from, c.seq, c.id, named.seq)
	}
	w.reverted = append(w.reverted, c)
	return w.do(patch.NewRevert(c.id))
}

// cover marks to be hidden again what a reverted cut had taken out, and what patches had
// taken out all of whose nodes it had taken out.
func (w *rewinding) cover(c *cut) {
	hidden := map[nodeID]bool{}
	for n := range c.tookOut {
		hidden[n.id()] = true
	}
	for again := true; again; {
		again = false
		for _, inner := range w.reverted {
			all := true
			for n := range inner.in {
				all = all && hidden[n.id()]
			}
			if !all {
				continue
			}
			for n := range inner.tookOut {
				again = again || !hidden[n.id()]
				hidden[n.id()] = true
			}
		}
	}
	for id := range hidden {
		if c.keep {
			w.kept[id] = true
		} else {
			w.dropped[id] = true
		}
	}
}

// stretch is a run of nodes to cut: visible indices, and what carries state outside them.
type stretch struct {
	first, end int
	outside    []*node
}

// stretches returns the runs of nodes that are to go, as long as can be. Markers of
// reverts belong to any.
func (w *rewinding) stretches(goes func(*node) bool) []stretch {
	var all []stretch
	open := false
	visible := 0
	var trailing []*node // that carry state, behind the last visible node of the open one
	shut := func() {
		if open {
			last := &all[len(all)-1]
			last.outside = append(last.outside, trailing...)
		}
		open, trailing = false, nil
	}
	for n := range w.view.root.all {
		switch {
		case n.isRevertMarker():
			continue
		case !goes(n):
			shut()
		case !open:
			all, open = append(all, stretch{first: visible, end: visible}), true
		}
		if n.event != nil {
			visible++
		}
		if !open {
			continue
		}
		last := &all[len(all)-1]
		switch {
		case n.event != nil:
			if last.end == last.first { // markers before it stay outside
				last.outside = append(last.outside, trailing...)
			}
			last.end, trailing = visible, nil
		case len(n.carries()) > 0:
			trailing = append(trailing, n)
		}
	}
	shut()
	return all
}

// cut cuts what is in the set and not new, with a policy.
func (w *rewinding) cut(set map[nodeID]bool, policy patch.StatePolicy) error {
	if len(set) == 0 {
		return nil
	}
	all := w.stretches(func(n *node) bool { return set[n.id()] && !w.dropped[n.id()] && !w.isNew(n) })
	return w.cutAll(all, policy)
}

func (w *rewinding) cutAll(all []stretch, policy patch.StatePolicy) error {
	for _, s := range slices.Backward(all) { // so that earlier indices stay
		if s.end == s.first {
			continue
		}
		if err := w.do(patch.NewSplice(s.first, s.end-s.first).WithState(policy)); err != nil {
			return err
		}
	}
	return nil
}

// cutNew cuts what is new, and what is to be dropped again. A cut takes no marker beyond
// its first or last event: what such a one carries goes by reverting its patch first, and
// cutting what that brings back.
func (w *rewinding) cutNew() error {
	for {
		all := w.stretches(func(n *node) bool { return w.dropped[n.id()] || w.isNew(n) })
		i := slices.IndexFunc(all, func(s stretch) bool { return len(s.outside) > 0 })
		if i < 0 {
			return w.cutAll(all, patch.Drop)
		}
		marker := w.known[all[i].outside[0].seq].cut
		for n := range marker.tookOut {
			w.dropped[n.id()] = true
		}
		if err := w.revert(marker); err != nil {
			return err
		}
	}
}
