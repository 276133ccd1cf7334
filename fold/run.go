package fold

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// run is a stretch of nodes that a patch took out. It is never changed. While it has its
// events, it has nodes; a lean one has pieces, which say where in the log they are.
type run struct {
	nodes  []node
	pieces []piece
	size   int // nodes in the pieces
}

// piece is a node without an event's body, or several: events that consecutive records
// put into the log.
type piece struct {
	node
	events int // how many events; 0: it is a marker
}

// lean returns the run of the nodes, without bodies.
func lean(nodes []node) run {
	r := run{size: len(nodes)}
	for _, n := range nodes {
		last := len(r.pieces) - 1
		switch {
		case n.event == nil:
			r.pieces = append(r.pieces, piece{n, 0})
			continue
		case n.cut == nil && last >= 0 && r.pieces[last].cut == nil && r.pieces[last].seq+uint64(r.pieces[last].events) == n.seq:
			r.pieces[last].events++
			continue
		}
		n.event = nil
		r.pieces = append(r.pieces, piece{n, 1})
	}
	r.pieces = slices.Clip(r.pieces)
	return r
}

// each yields the run's nodes, some perhaps without bodies.
func (r run) each(yield func(node) bool) {
	for _, n := range r.nodes {
		if !yield(n) {
			return
		}
	}
	for _, p := range r.pieces {
		for i := range max(p.events, 1) {
			n := p.node
			n.seq += uint64(i)
			if !yield(n) {
				return
			}
		}
	}
}

// seqs returns the seqs of the records that hold the bodies which the run has not.
func (r run) seqs() []uint64 {
	var seqs []uint64
	for _, p := range r.pieces {
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
	if r.nodes != nil {
		return slices.Clone(r.nodes), nil
	}
	nodes := make([]node, 0, r.size)
	for _, p := range r.pieces {
		if p.events == 0 {
			nodes = append(nodes, p.node)
			continue
		}
		for i := range p.events {
			n := p.node
			n.seq += uint64(i)
			var err error
			if n.event, err = at.event(n.seq, n.index); err != nil {
				return nil, err
			}
			if n.event == nil {
				n.event = absent
			}
			if n.event == nil {
				return nil, &NeedError{Seqs: r.seqs()}
			}
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}
