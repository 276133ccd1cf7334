package fold

import "slices"

// run is an immutable list of adjacent nodes, for example the nodes that a patch removed.
type run struct {
	pieces []piece
}

// piece is a part of a run. It is a marker, an event that a patch added, or a series of regular events of
// consecutive records. The embedded node is the first node of the piece, without its event.
type piece struct {
	node
	events int // number of events; 0 for a marker
}

func (s *sequence) runOf(lo, hi int) run {
	var r run
	s.walk(lo, hi, func(n *node) bool {
		r.add(n)
		return true
	})
	return r
}

func (r *run) add(n *node) {
	if last := len(r.pieces) - 1; last >= 0 && n.event != nil && n.cut == nil {
		if p := &r.pieces[last]; p.cut == nil && p.seq+uint64(p.events) == n.seq {
			p.events++
			return
		}
	}
	p := piece{node: *n}
	if n.event != nil {
		p.event, p.events = nil, 1
	}
	r.pieces = append(r.pieces, p)
}

func (r *run) len() (n int) {
	for i := range r.pieces {
		n += max(r.pieces[i].events, 1)
	}
	return n
}

// hasEvents reports whether the run contains an event, not only markers.
func (r *run) hasEvents() bool {
	return slices.ContainsFunc(r.pieces, func(p piece) bool { return p.events > 0 })
}

// each yields the run's nodes without their events.
func (r *run) each(yield func(node) bool) {
	for i := range r.pieces {
		n := r.pieces[i].node
		for range max(r.pieces[i].events, 1) {
			if !yield(n) {
				return
			}
			n.seq++
		}
	}
}
