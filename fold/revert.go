package fold

import (
	"fmt"
	"maps"
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
func (n *node) isRevertMarker() bool { return n.event == nil && n.cut.revert }

// revertEdit finds out what a revert does (semantics, section 9). It makes the view
// whole. Errors are as those of [View.edit].
func (v *View) revertEdit(p *patch.PatchEvent) (edit, error) {
	if err := v.makeWhole(); err != nil {
		return edit{}, err
	}
	target := v.patches.find(p.PatchID())
	if target == nil {
		return edit{}, &patch.Defect{Field: "patchId", Problem: fmt.Sprintf("no patch %q has been applied", p.PatchID()), Flaw: patch.PatchNotFound}
	}
	lo, hi, ok := v.root.stretch(target)
	if !ok {
		return edit{}, errBlocked
	}
	back, err := v.ahead.load(target.out.Load())
	if err != nil {
		return edit{}, err
	}
	return edit{
		patch: p, target: target, back: back, lo: lo, hi: hi,
		first: v.root.visibleBefore(lo), end: v.root.visibleBefore(hi),
	}, nil
}

// stretch returns where the nodes stand that a patch put in. ok is false if one of them
// does not, or if anything but markers of reverts stands between.
func (t *tree) stretch(c *cut) (lo, hi int, ok bool) {
	lo = -1
	at := t.seek(c.pos)
	hi = at
	t.walk(at, t.len(), func(n *node) bool {
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
	t.walk(lo, t.len(), func(n *node) bool {
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
func (v *View) blockedError(p *patch.PatchEvent) error {
	by := v.blocking(v.patches.find(p.PatchID()), v.seq)
	return &BlockedError{PatchID: p.PatchID(), Blocking: by.id, BlockingSeq: by.seq}
}

// blocking returns the patch, of those up to a seq, that is in the way of reverting one:
// the newest standing one that took out, at any depth, a node that the revert needs, or
// that put in one that stands in between. There is one if the revert cannot be applied. It
// takes time linear in all that patches ever did.
func (v *View) blocking(target *cut, upTo uint64) *cut {
	needs := map[nodeID]bool{}
	for n := range target.in {
		needs[n.id()] = true
	}
	missing := maps.Clone(needs) // and later what stands for such a node
	standing := make(map[nodeID]bool, v.root.len())
	between := map[nodeID]bool{}
	var behind []nodeID // what stands behind the last node found that is needed
	for n := range v.root.all {
		id := n.id()
		standing[id] = true
		switch {
		case needs[id]:
			for _, other := range behind {
				between[other] = true
			}
			behind = nil
			delete(missing, id)
		case len(missing) < len(needs) && !n.isRevertMarker():
			behind = append(behind, id)
		}
	}
	var newest *cut
	for _, c := range v.patches.ascending() {
		holds := false
		for n := range c.tookOut {
			holds = holds || missing[n.id()]
		}
		stands, parts := false, false
		for n := range c.in {
			stands = stands || standing[n.id()]
			parts = parts || between[n.id()]
			if holds {
				missing[n.id()] = true
			}
		}
		if stands && (holds || parts) && c.seq <= upTo {
			newest = c
		}
	}
	return newest
}
