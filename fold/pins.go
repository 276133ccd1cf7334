package fold

import (
	"maps"

	"github.com/patchlog-dev/patchlog/patch"
)

// pins is the nodes that are pinned. It is never changed. A pin belongs to the node, not
// to its place: a node that is hidden and comes back is pinned as before.
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

// pinChange is what a pin, an unpin, or the revert of one leaves.
type pinChange struct {
	node   nodeID
	pinned bool
}

// IsPinned reports whether the visible event with index i is pinned: whether the newest
// pin or unpin of it that has not been taken back is a pin. It panics if i is out of
// range.
func (v View) IsPinned(i int) bool { return v.pins.has(v.node(i).id()) }

func (v *View) pinEdit(p *patch.PatchEvent) (edit, error) {
	i, ok := v.Find(p.EventID())
	if !ok {
		return edit{}, notVisible(p)
	}
	return v.pinning(p, pinChange{v.node(i).id(), p.Type() == patch.Pin}), nil
}

func (v *View) pinning(p *patch.PatchEvent, c pinChange) edit {
	n := v.Len()
	return edit{patch: p, first: n, end: n, pin: &c}
}

// unpinEdit finds out what the revert of a pin, of an unpin, or of such a revert does. It
// applies if that patch left the event as it is, pinned or not, and the pin or unpin that
// all is about as it is, taken back or not. The event is then as the newest pin or unpin
// says that is not taken back.
func (v *View) unpinEdit(p *patch.PatchEvent, target *cut) (edit, error) {
	undone := v.patches.undone(0)
	c := *target.pin
	root := target.root()
	if undone[target] || undone[root] != v.patches.before(target.seq + 1).undone(0)[root] || v.pins.has(c.node) != c.pinned {
		return edit{}, errBlocked
	}
	takeBack(undone, target)
	c.pinned = v.patches.pins(c.node, undone)
	e := v.pinning(p, c)
	e.target = target
	return e, nil
}

// blockingPin returns the patch that is in the way of reverting a pin, an unpin, or the
// revert of one: the newest of those that must be reverted first, and so on for these.
func (v *View) blockingPin(target *cut) *cut {
	undone := v.patches.undone(0)
	obstacles := func(c *cut) []*cut { return v.pinObstacles(c, undone) }
	return newestOf(obstacles(target), obstacles)
}

// pinObstacles returns the patches that must be reverted before one about a pin can be:
// what has taken it back, and what has changed since whether the pin or unpin that it is
// about stands, and whether, with that as it was, the event is pinned.
func (v *View) pinObstacles(target *cut, undone map[*cut]bool) []*cut {
	var must []*cut
	last := map[*cut]*cut{} // what made a pin or unpin stand or not
	for _, c := range v.patches.ascending() {
		if c.pin == nil {
			continue
		}
		last[c.root()] = c
		if c.target == target && !undone[c] {
			must = append(must, c)
		}
	}
	then := v.patches.before(target.seq + 1)
	undoneThen, asThen := then.undone(0), maps.Clone(undone)
	root := target.root()
	if undone[root] != undoneThen[root] {
		must = append(must, last[root].inTheWayOf(target))
		asThen[root] = undoneThen[root]
	}
	node := target.pin.node
	if d := v.patches.decider(node, asThen); (d != nil && d.pin.pinned) != target.pin.pinned {
		for _, d := range []*cut{d, then.decider(node, undoneThen)} {
			if d != nil && last[d].seq > target.seq {
				must = append(must, last[d].inTheWayOf(target))
			}
		}
	}
	return must
}

// pinnedIn returns the pinned ones of the visible events from index first up to end.
func (v View) pinnedIn(first, end int) []Entry {
	if len(v.pins) == 0 {
		return nil
	}
	var out []Entry
	for i := first; i < end; i++ {
		if e := v.Entry(i); e.Pinned {
			out = append(out, e)
		}
	}
	return out
}
