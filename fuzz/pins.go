package fuzz

import "slices"

// Pinned reports, for each visible event, whether the event is pinned.
func (r *Reference) Pinned() []bool {
	var pinned []bool
	for _, n := range r.visible() {
		pinned = append(pinned, r.isPinned(n))
	}
	return pinned
}

// isPinned reports whether a node is pinned. It is pinned if the newest active pin or unpin of the node is a pin.
func (r *Reference) isPinned(n *node) bool {
	for _, a := range slices.Backward(r.applied) {
		if a.pin == n && a.target == nil && r.isActive(a) {
			return a.isPin
		}
	}
	return false
}

// revertsOf returns the active reverts of the patch, oldest first.
func (r *Reference) revertsOf(a *applied) []*applied {
	return filter(r.applied, func(b *applied) bool { return b.target == a && r.isActive(b) })
}
