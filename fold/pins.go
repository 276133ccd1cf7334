package fold

import (
	"maps"

	"github.com/patchlog-dev/patchlog/patch"
)

// pins is the immutable set of pinned nodes. A pin belongs to the node, not to its position: a node that was hidden
// and is restored is pinned as before.
type pins map[nodeID]struct{}

func (p pins) has(id nodeID) bool {
	_, ok := p[id]
	return ok
}

// with returns the pins after a change.
func (p pins) with(c pinChange) pins {
	if p.has(c.node) == c.pinned {
		return p
	}
	next := maps.Clone(p)
	switch {
	case !c.pinned:
		delete(next, c.node)
	case next == nil:
		next = pins{c.node: {}}
	default:
		next[c.node] = struct{}{}
	}
	return next
}

// pinChange is the result of a pin, an unpin, or the revert of one.
type pinChange struct {
	node   nodeID
	pinned bool
}

// IsPinned reports whether the visible event with index i is pinned: whether its newest active pin or unpin is a pin.
// It panics if i is out of range.
func (v View) IsPinned(i int) bool { return v.pins.has(v.node(i).id()) }

func (v *View) pinEdit(p *patch.PatchEvent) (edit, error) {
	i, ok := v.Find(p.EventID())
	if !ok {
		return edit{}, notVisible(p)
	}
	return v.newPinEdit(p, pinChange{v.node(i).id(), p.Type() == patch.Pin}), nil
}

func (v *View) newPinEdit(p *patch.PatchEvent, c pinChange) edit {
	n := v.Len()
	return edit{patch: p, first: n, end: n, pin: &c}
}

// unpinEdit returns the effect of reverting a pin, an unpin, or such a revert. It applies if two things are as the
// target left them: whether the event is pinned, and whether the pin or unpin at the root is active. The newest
// active pin or unpin then decides whether the event is pinned.
func (v *View) unpinEdit(p *patch.PatchEvent, target *cut) (edit, error) {
	undone := v.patches.undone(0)
	c := *target.pin
	root := target.root()
	if undone[target] || undone[root] != v.patches.olderThan(target.seq + 1).undone(0)[root] || v.pins.has(c.node) != c.pinned {
		return edit{}, errBlocked
	}
	c.pinned = v.patches.pinsNode(c.node, v.patches.undone(0, target))
	e := v.newPinEdit(p, c)
	e.target = target
	return e, nil
}

// newestPinBlocker returns the newest patch that must be reverted before a pin, an unpin, or the revert of one:
// the newest of its blockers, of theirs, and so on.
func (v *View) newestPinBlocker(target *cut) *cut {
	undone := v.patches.undone(0)
	obstacles := func(c *cut) []*cut { return v.pinBlockers(c, undone) }
	return newestOf(obstacles(target), obstacles)
}

// pinBlockers returns the patches that must be reverted before a patch about a pin: its own active reverts, and later
// patches that changed whether its root is active, or whether the event is pinned otherwise.
func (v *View) pinBlockers(target *cut, undone map[*cut]bool) []*cut {
	var must []*cut
	last := map[*cut]*cut{} // the patch that last activated or deactivated a pin or unpin
	for _, c := range v.patches.ascending() {
		if c.pin == nil {
			continue
		}
		last[c.root()] = c
		if c.target == target && !undone[c] {
			must = append(must, c)
		}
	}
	then := v.patches.olderThan(target.seq + 1)
	undoneThen, asThen := then.undone(0), maps.Clone(undone)
	root := target.root()
	if undone[root] != undoneThen[root] {
		must = append(must, last[root].blockerFor(target))
		asThen[root] = undoneThen[root]
	}
	node := target.pin.node
	if d := v.patches.decidingPin(node, asThen); (d != nil && d.pin.pinned) != target.pin.pinned {
		for _, d := range []*cut{d, then.decidingPin(node, undoneThen)} {
			if d != nil && last[d].seq > target.seq {
				must = append(must, last[d].blockerFor(target))
			}
		}
	}
	return must
}

// pinnedIn returns the pinned events with the indices from first up to end.
func (v View) pinnedIn(first, end int) []Entry {
	if len(v.pins) == 0 {
		return nil
	}
	var out []Entry
	for i, n := range v.visible(first, end) {
		if e := v.entry(i, n); e.Pinned {
			out = append(out, e)
		}
	}
	return out
}
