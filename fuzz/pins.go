package fuzz

import "slices"

// Pinned reports for each visible event whether it is pinned.
func (r *Reference) Pinned() []bool {
	var pinned []bool
	for _, n := range r.visible() {
		pinned = append(pinned, r.isPinned(n))
	}
	return pinned
}

// isPinned reports whether the newest standing pin or unpin of the node is a pin.
func (r *Reference) isPinned(n *node) bool { return r.wasPinnedBefore(n, r.next()) }

// wasPinnedBefore reports whether the node was pinned before the record with the seq.
func (r *Reference) wasPinnedBefore(n *node, seq uint64) bool {
	a := r.decider(n, seq)
	return a != nil && a.pins
}

// decider returns the newest pin or unpin of the node that stood before the record with
// the seq, or nil.
func (r *Reference) decider(n *node, seq uint64) *applied {
	return r.deciderAmong(n, func(a *applied) bool { return a.seq < seq && r.stoodBefore(a, seq) })
}

// deciderAmong returns the newest pin or unpin of the node for which stands is true, or nil.
func (r *Reference) deciderAmong(n *node, stands func(*applied) bool) *applied {
	for _, a := range slices.Backward(r.applied) {
		if a.pin == n && a.of == nil && stands(a) {
			return a
		}
	}
	return nil
}

// pinMust returns the patches to revert before a pin, an unpin or the revert of one can be reverted. There are none
// if the patch stands, and its root and the event's pin are as they were after it.
func (r *Reference) pinMust(a *applied) []*applied {
	must := filter(r.applied, func(b *applied) bool { return b.of == a && r.stands(b) })
	stands := func(b *applied) bool {
		if b == a.root() { // its state after the reverts that this function returns
			return a.leftStanding
		}
		return r.stands(b)
	}
	if r.stands(a.root()) != a.leftStanding {
		must = append(must, r.lastTurn(a.root()).inTheWayOf(a))
	}
	if d := r.deciderAmong(a.pin, stands); (d != nil && d.pins) != a.leftPinned {
		for _, d := range []*applied{d, r.decider(a.pin, a.seq+1)} {
			if d != nil && r.lastTurn(d).seq > a.seq {
				must = append(must, r.lastTurn(d).inTheWayOf(a))
			}
		}
	}
	return must
}

// lastTurn returns the last patch that changed whether a pin or unpin stands: itself or a revert.
func (r *Reference) lastTurn(pin *applied) *applied {
	turns := filter(r.applied, func(a *applied) bool { return a.root() == pin })
	return turns[len(turns)-1]
}
