package fold

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// run is a stretch of nodes that a patch took out. It is never changed.
type run struct {
	pieces []piece
	size   int // nodes in the pieces
}

// piece is a marker, an event that a patch put in, or regular events of consecutive records. The
// node is the first of them, without its event.
type piece struct {
	node
	events int            // how many events; 0: it is a marker
	bodies []*patch.Event // the events, or nil where the log has to hand them in
}

// runOf returns the run of the nodes from lo up to hi. bodies says whether it keeps the events.
func (t *tree) runOf(lo, hi int, bodies bool) run {
	r := run{size: hi - lo}
	t.walk(lo, hi, func(n *node) bool {
		last := len(r.pieces) - 1
		if n.event == nil || n.cut != nil || last < 0 || r.pieces[last].cut != nil || r.pieces[last].seq+uint64(r.pieces[last].events) != n.seq {
			r.pieces = append(r.pieces, piece{node: *n})
			last++
		}
		if p := &r.pieces[last]; n.event != nil {
			p.event = nil
			p.events++
			if bodies {
				p.bodies = append(p.bodies, n.event)
			}
		}
		return true
	})
	r.pieces = slices.Clip(r.pieces)
	return r
}

// all yields the nodes of the piece, in order, with their events as far as the piece or the log at hand has
// them. The error is as that of [hand.event].
func (p *piece) all(at hand, yield func(node) bool) (err error) {
	for i := range max(p.events, 1) {
		n := p.node
		n.seq += uint64(i)
		switch {
		case p.events == 0:
		case p.bodies != nil:
			n.event = p.bodies[i]
		default:
			if n.event, err = at.event(n.seq, n.index); err != nil {
				return err
			}
		}
		if !yield(n) {
			return nil
		}
	}
	return nil
}

// each yields the run's nodes, some perhaps without bodies.
func (r run) each(yield func(node) bool) {
	more := true
	for i := range r.pieces {
		_ = r.pieces[i].all(nil, func(n node) bool { // which fails for none at hand
			more = yield(n)
			return more
		})
		if !more {
			return
		}
	}
}

// hasEvents reports whether the run has anything that was visible.
func (r run) hasEvents() bool {
	return slices.ContainsFunc(r.pieces, func(p piece) bool { return p.events > 0 })
}

// seqs returns the seqs of the records that hold the bodies which the run has not.
func (r run) seqs() []uint64 {
	var seqs []uint64
	for _, p := range r.pieces {
		if p.bodies != nil {
			continue
		}
		for i := range p.events {
			seqs = append(seqs, p.seq+uint64(i))
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// with returns the run's nodes with their events, which are among the records. In the place
// of those that are not stands another event, or if that is nil, the error is a *[NeedError].
func (r run) with(at hand, absent *patch.Event) ([]node, error) {
	nodes := make([]node, 0, r.size)
	for i := range r.pieces {
		p := &r.pieces[i]
		err := p.all(at, func(n node) bool {
			if n.event == nil && p.events > 0 {
				n.event = absent
			}
			nodes = append(nodes, n)
			return p.events == 0 || n.event != nil
		})
		if err != nil {
			return nil, err
		}
		if last := len(nodes) - 1; p.events > 0 && nodes[last].event == nil {
			return nil, &NeedError{Seqs: r.seqs()}
		}
	}
	return nodes, nil
}
