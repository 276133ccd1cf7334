package fold

import (
	"maps"

	"github.com/patchlog-dev/patchlog/patch"
)

// pins is the immutable set of pinned nodes. A pin applies to a node, not to a position: if a pinned node is
// hidden and then restored, it is still pinned. The newest active pin or unpin of a node determines whether the
// node is pinned.
type pins map[nodeID]struct{}

func (p pins) has(id nodeID) bool {
	_, ok := p[id]
	return ok
}

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

// pinChange is the effect of a pin, an unpin, or the revert of either.
type pinChange struct {
	node   nodeID
	pinned bool
}

// IsPinned reports whether the visible event with index i is pinned. An event is pinned if its newest active
// pin or unpin is a pin. IsPinned panics if i is out of range.
func (v View) IsPinned(i int) bool { return v.pins.has(v.node(i).id()) }

func (v *View) pinEdit(p *patch.PatchEvent) (edit, error) {
	i, ok := v.Find(p.EventID())
	if !ok {
		return edit{}, eventNotVisible(p)
	}
	return v.newPinEdit(p, pinChange{v.node(i).id(), p.Type() == patch.Pin}), nil
}

func (v *View) newPinEdit(p *patch.PatchEvent, c pinChange) edit {
	n := v.Len()
	return edit{patch: p, first: n, end: n, pin: &c}
}

// revertPinEdit returns the effect of a revert whose target is a pin, an unpin, or the revert of either. The revert
// can be applied if the target is active. Later patches do not block it, because no nodes are involved.
func (v *View) revertPinEdit(p *patch.PatchEvent, target *cut) (edit, error) {
	if v.patches.inactive(target.seq)[target] {
		return edit{}, errBlocked
	}
	// The result does not depend on the target alone. After "2:pin A, 3:unpin A", a revert of 2 leaves A
	// unpinned, because 3 decides. After "2:pin A, 3:unpin A, 4:revert 2", a revert of 3 also leaves A
	// unpinned, because no active pin remains. The result is therefore computed as if the target were inactive.
	c := *target.pin
	c.pinned = v.patches.isPinned(c.node, v.patches.inactive(0, target))
	e := v.newPinEdit(p, c)
	e.target = target
	return e, nil
}

// pinnedIn returns the pinned events with indices in [first, end).
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
