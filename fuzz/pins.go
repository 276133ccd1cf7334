package fuzz

import "slices"

// Pinned says for each visible event whether it is pinned.
func (r *Reference) Pinned() []bool {
	var pinned []bool
	for _, n := range r.visible() {
		pinned = append(pinned, r.isPinned(n))
	}
	return pinned
}

// isPinned reports whether the newest standing pin or unpin of the node is a pin.
func (r *Reference) isPinned(n *node) bool { return r.wasPinnedBefore(n, r.next()) }

// wasPinnedBefore says whether the node was pinned before the record with the seq.
func (r *Reference) wasPinnedBefore(n *node, seq uint64) bool {
	a := r.decider(n, seq)
	return a != nil && a.pins
}

// decider returns the newest pin or unpin of the node that stood before the record with
// the seq, or nil.
func (r *Reference) decider(n *node, seq uint64) *applied {
	return r.deciderAmong(n, func(a *applied) bool { return a.seq < seq && r.stoodBefore(a, seq) })
}

// deciderAmong returns the newest pin or unpin of the node, of those that stand, or nil.
func (r *Reference) deciderAmong(n *node, stands func(*applied) bool) *applied {
	for _, a := range slices.Backward(r.applied) {
		if a.pin == n && a.of == nil && stands(a) {
			return a
		}
	}
	return nil
}

// pinMust returns what must be reverted before a pin, an unpin or the revert of one can
// be: nothing if the pin is as that patch left it. It is if the patch stands, and what
// it pinned, or took back, and the event itself are as they were after it.
func (r *Reference) pinMust(a *applied) []*applied {
	var must []*applied
	for _, b := range r.applied {
		if b.of == a && r.stands(b) {
			must = append(must, b)
		}
	}
	stands := func(b *applied) bool {
		if b == a.root() { // it will, or will not, when what follows is done
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

// lastTurn returns the patch that last made a pin or unpin stand or not: itself, or a
// revert.
func (r *Reference) lastTurn(pin *applied) *applied {
	last := pin
	for _, b := range r.applied {
		if b.root() == pin {
			last = b
		}
	}
	return last
}
