package fold

import (
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// nodeID is a node's identity: the record that made it, and its place among the nodes
// that the record made.
type nodeID struct {
	seq   uint64
	index int32
}

func (n node) id() nodeID { return nodeID{n.seq, n.index} }

// isRevertMarker reports whether the node is the marker of a revert, which may stand
// anywhere and means nothing.
func (n *node) isRevertMarker() bool { return n.cut != nil && n.cut.revert }

// revertEdit finds out what a revert does: all that its patch put in must stand, with
// nothing between but markers of reverts; that stretch makes room for what the patch had
// taken out. Errors are as those of [View.edit].
func (v *View) revertEdit(p *patch.PatchEvent) (edit, error) {
	target := v.patches.find(p.PatchID())
	switch {
	case target == nil:
		return edit{}, patchNotFound(p.PatchID())
	case target.pin != nil:
		return v.unpinEdit(p, target)
	}
	lo, hi, ok := v.nodes.stretch(target)
	if !ok {
		return edit{}, errBlocked
	}
	back, err := v.bodies(&target.out)
	if err != nil {
		return edit{}, err
	}
	return edit{
		patch: p, target: target, back: back, lo: lo, hi: hi,
		first: v.nodes.visibleBefore(lo), end: v.nodes.visibleBefore(hi),
	}, nil
}

// stretch returns where the nodes stand that a patch put in. ok is false if one of them
// does not, or if anything but markers of reverts stands between.
func (s *sequence) stretch(c *cut) (lo, hi int, ok bool) {
	lo = -1
	at := s.seek(c.pos)
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
	rest := slices.Collect(c.in)
	s.walk(lo, s.len(), func(n *node) bool {
		switch {
		case len(rest) == 0:
			return false
		case n.id() == rest[0].id():
			rest = rest[1:]
		case !n.isRevertMarker():
			return false
		}
		hi++
		return true
	})
	return lo, hi, len(rest) == 0
}

// blockedError says which patch is in the way of a revert that cannot be applied.
func (v *View) blockedError(target *cut) error {
	by := v.blocking(target)
	if target.pin != nil {
		by = v.blockingPin(target)
	}
	if by == nil { // nothing is, but the nodes are not where the log says
		return fmt.Errorf("%w: the view has nodes at other places than the log", patch.ErrCorrupt)
	}
	return &BlockedError{PatchID: target.id, Blocking: by.id, BlockingSeq: by.seq, TakenBack: by.target == target}
}

// blocking returns the patch that is in the way of reverting one: the newest of those that
// must be reverted first, and so on for these, which nothing else has taken anything from.
// It takes time linear in all that patches ever did.
func (v *View) blocking(target *cut) *cut {
	must, holder := v.obstacles(target)
	return newestOf(must, holder.of)
}

// newestOf returns the newest of the patches that must be reverted, and of those that must
// be for these, and so on.
func newestOf(must []*cut, before func(*cut) []*cut) *cut {
	seen := map[*cut]bool{}
	var newest *cut
	for len(must) > 0 {
		c := must[len(must)-1]
		must = must[:len(must)-1]
		if seen[c] {
			continue
		}
		seen[c] = true
		if newest == nil || c.seq > newest.seq {
			newest = c
		}
		must = append(must, before(c)...)
	}
	return newest
}

// holders says of each node that does not stand what took it out.
type holders map[nodeID]*cut

// of returns the patches to revert for all nodes that target put in to stand again. The marker of a
// revert that a redo took out comes back only by reverting that redo, and with it all else that
// its patch took out.
func (h holders) of(target *cut) (must []*cut) {
	redos := map[*cut]*cut{} // to revert, by the patches that stand again
	for n := range target.in {
		if by := h[n.id()]; by != nil && by.isRedo() && n.isRevertMarker() {
			redos[by.root()] = by
		}
	}
	for n := range target.in {
		switch by := h[n.id()]; {
		case by == nil:
		case by.isRedo() && redos[by.root()] != nil:
			must = append(must, redos[by.root()])
		default:
			must = append(must, by.inTheWayOf(target))
		}
	}
	return must
}

// obstacles returns the patches that must be reverted before one can be. What the revert
// needs and does not find, some patch has taken out: that one must be reverted first. So
// must be what made a node that stands in between; a regular event there came back in
// place of a node that is missing.
func (v *View) obstacles(target *cut) (must []*cut, holder holders) {
	needs := map[nodeID]bool{}
	for n := range target.in {
		needs[n.id()] = true
	}
	found := 0
	between := map[uint64]bool{} // the seqs of patches that made what stands in between
	var behind []uint64          // and behind the last node found that is needed
	for n := range v.nodes.all {
		id := n.id()
		switch {
		case needs[id]:
			for _, other := range behind {
				between[other] = true
			}
			behind = nil
			found++
		case found > 0 && !n.isRevertMarker():
			behind = append(behind, id.seq)
		}
	}
	holder = holders{}
	for _, c := range v.patches.ascending() {
		for n := range c.tookOut {
			holder[n.id()] = c
		}
		for n := range c.in {
			delete(holder, n.id())
		}
		if between[c.seq] {
			must = append(must, c)
		}
	}
	return append(must, holder.of(target)...), holder
}
