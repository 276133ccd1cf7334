package fold

import (
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// nodeID identifies a node by the seq of the record that created it, and its index among the nodes of that
// record.
type nodeID struct {
	seq   uint64
	index int32
}

func (n node) id() nodeID { return nodeID{n.seq, n.index} }

// isRevertMarker reports whether the node is the marker of a revert. Such a marker has no effect.
func (n *node) isRevertMarker() bool { return n.cut != nil && n.cut.isRevert }

// revertEdit returns the effect of a revert. All nodes that the target added must be in the sequence, and only
// markers of reverts may be between them. The nodes that the target removed replace them. The errors are the
// same as in [View.edit].
func (v *View) revertEdit(p *patch.PatchEvent) (edit, error) {
	target := v.patches.find(p.PatchID())
	switch {
	case target == nil:
		return edit{}, patchNotFound(p.PatchID())
	case target.pin != nil:
		return v.revertPinEdit(p, target)
	}
	lo, hi, ok := v.nodes.locate(target)
	if !ok {
		return edit{}, errBlocked
	}
	restored, err := v.withEvents(&target.removed)
	if err != nil {
		return edit{}, err
	}
	return edit{
		patch: p, target: target, restored: restored, lo: lo, hi: hi,
		first: v.nodes.visibleBefore(lo), end: v.nodes.visibleBefore(hi),
	}, nil
}

// locate returns the range of the nodes that a patch added. If a node is missing, or if a node other than a
// revert's marker is between them, ok is false.
func (s *sequence) locate(c *cut) (lo, hi int, ok bool) {
	// Nodes with the same pos are adjacent, so the patch's first node is found by its pos. The other nodes may
	// have another pos, because a revert restores nodes of several patches. They follow the first node.
	lo = -1
	at := s.firstAtPos(c.pos)
	hi = at
	s.walk(at, s.len(), func(n *node) bool {
		if n.seq == c.seq && n.index == 0 {
			lo = hi
		}
		hi++
		return lo < 0 && n.pos() == c.pos
	})
	if lo < 0 {
		return 0, 0, false
	}
	hi = lo
	rest := slices.Collect(c.addedNodes)
	s.walk(lo, s.len(), func(n *node) bool {
		switch {
		case len(rest) == 0:
			return false
		case n.id() == rest[0].id():
			rest = rest[1:]
		case !n.isRevertMarker():
			return false
		}
		// A revert's marker may be between the nodes. In "add x, y; insert z between them; revert the
		// insertion" the sequence is x, marker, y. It must still be possible to revert the addition.
		hi++
		return true
	})
	return lo, hi, len(rest) == 0
}

func (v *View) blockedError(target *cut) error {
	if by := v.patches.newestRevert(target); by != nil {
		return alreadyReverted(target.id, by)
	}
	by := v.newestBlocker(target)
	if by == nil { // no patch blocks the revert, so the sequence contradicts the log
		return fmt.Errorf("%w: the positions in the view do not match the log", patch.ErrCorrupt)
	}
	return &BlockedError{PatchID: target.id, Blocking: by.id, BlockingSeq: by.seq}
}

func alreadyReverted(id string, by *cut) error {
	return &BlockedError{PatchID: id, Blocking: by.id, BlockingSeq: by.seq, AlreadyReverted: true}
}

// newestBlocker returns the newest of the patches that must be reverted before target: its blockers, their
// blockers, and so on. No patch blocks the revert of that newest patch. The search takes time linear in the
// number of nodes that all patches added and removed.
func (v *View) newestBlocker(target *cut) *cut {
	pending, removedBy := v.blockers(target)
	seen := map[*cut]bool{}
	var newest *cut
	for len(pending) > 0 {
		c := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if seen[c] {
			continue
		}
		seen[c] = true
		if newest == nil || c.seq > newest.seq {
			newest = c
		}
		pending = append(pending, removedBy.blockersOf(c)...)
	}
	return newest
}

// removers maps each node that is missing from the sequence to the patch that removed it.
type removers map[nodeID]*cut

// blockersOf returns the patches to revert so that all nodes that target added are restored. If a revert's
// marker is missing, the nodes after it are ignored. The nodes followed the marker when it was removed, so
// restoring the marker may restore them.
//
// An example is "1:e 2:splice e, 3:revert 2, 4:splice e, 5:revert 4, 6:revert 3, 7:revert 2, 8:revert 7". To
// redo 4, a caller must revert 5. Patch 5 added a marker, which 6 removed, and e, which 8 removed. A revert of
// 6 restores both. If e counted, the result would name 8, then the revert of 8, and so on.
func (h removers) blockersOf(target *cut) (blockers []*cut) {
	for n := range target.addedNodes {
		if by := h[n.id()]; by != nil {
			blockers = append(blockers, by.blockerFor(target))
			if n.isRevertMarker() {
				break
			}
		}
	}
	return blockers
}

// blockers returns the patches that must be reverted before target. These are the patches that removed a node
// that target added, and the patches that created a node between the nodes that target added. A regular event
// between these nodes adds no patch to the result, because the event was restored in place of a missing node.
func (v *View) blockers(target *cut) (blockers []*cut, removedBy removers) {
	added := map[nodeID]bool{}
	for n := range target.addedNodes {
		added[n.id()] = true
	}
	// A node is between the added nodes if there are added nodes on both sides. The nodes after an added node
	// are collected in trailing until another added node follows.
	found := 0
	between := map[uint64]bool{} // seqs of patches that created nodes between the added nodes
	var trailing []uint64        // seqs of the nodes after the last added node so far
	for n := range v.nodes.all {
		id := n.id()
		switch {
		case added[id]:
			for _, other := range trailing {
				between[other] = true
			}
			trailing = nil
			found++
		case found > 0 && !n.isRevertMarker():
			trailing = append(trailing, id.seq)
		}
	}
	// A node can be removed and restored many times. The loop runs in log order, so the last removal remains in
	// the map. In "2:cut e, 3:revert 2, 4:cut e", patch 4 removed e.
	removedBy = removers{}
	for _, c := range v.patches.ascending() {
		for n := range c.removedNodes {
			removedBy[n.id()] = c
		}
		for n := range c.addedNodes {
			delete(removedBy, n.id())
		}
		if between[c.seq] {
			blockers = append(blockers, c)
		}
	}
	return append(blockers, removedBy.blockersOf(target)...), removedBy
}
