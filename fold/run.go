package fold

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// Source reads records of the log that a view was folded from. Its methods may be called
// from any number of goroutines.
type Source interface {
	// Records returns the records with the given seqs, which ascend, in their order.
	Records(ctx context.Context, seqs []uint64) ([]patch.Record, error)
}

// run is a stretch of nodes that a patch took out. While its events are in memory it has
// nodes; when they have been let go of, pieces, and the source to read them from.
type run struct {
	nodes  []node
	pieces []piece
	size   int // nodes in the pieces
	source Source
}

// piece is a node without an event's body, or several: events that consecutive records
// put into the log.
type piece struct {
	node
	events int // how many events; 0: it is a marker
}

// compact returns the run of the nodes, without bodies.
func compact(nodes []node, source Source) *run {
	r := &run{size: len(nodes), source: source}
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

// each yields the run's nodes, some perhaps without bodies. The past of those that were
// restored from a snapshot must have been loaded.
func (r *run) each(yield func(node) bool) {
	for _, n := range r.nodes {
		for _, known := range n.resolved() {
			if !yield(known) {
				return
			}
		}
	}
	for _, p := range r.pieces {
		if p.events == 0 {
			for _, known := range p.resolved() {
				if !yield(known) {
					return
				}
			}
			continue
		}
		for i := range p.events {
			n := p.node
			n.seq += uint64(i)
			if !yield(n) {
				return
			}
		}
	}
}

// load returns the run's nodes with their events. Errors match [ErrSource].
func (r *run) load() ([]node, error) {
	if r.pieces == nil {
		return slices.Collect(r.each), nil
	}
	var seqs []uint64
	for _, p := range r.pieces {
		for i := range p.events {
			seqs = append(seqs, p.seq+uint64(i))
		}
	}
	events, err := loadEvents(context.Background(), r.source, seqs)
	if err != nil {
		return nil, err
	}
	nodes := make([]node, 0, r.size)
	for _, p := range r.pieces {
		if p.events == 0 {
			nodes = append(nodes, p.resolved()...)
			continue
		}
		for i := range p.events {
			n := p.node
			n.seq += uint64(i)
			if n.event, err = events.at(n.seq, n.index); err != nil {
				return nil, err
			}
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// readAhead holds what judging a revert has read until the revert is applied to the same
// view, so that it is read once.
type readAhead struct {
	mu    sync.Mutex
	run   *run
	nodes []node
}

// load is [run.load], but for a run that it has loaded just before.
func (a *readAhead) load(r *run) ([]node, error) {
	if a == nil || r.pieces == nil {
		return r.load()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.run == r {
		nodes := a.nodes
		a.run, a.nodes = nil, nil
		return nodes, nil
	}
	nodes, err := r.load()
	if err == nil {
		a.run, a.nodes = r, nodes
	}
	return nodes, err
}

// loaded is records by seq.
type loaded struct {
	seqs    []uint64
	records []patch.Record
}

// loadEvents reads records. seqs may have any order, and is sorted.
func loadEvents(ctx context.Context, source Source, seqs []uint64) (loaded, error) {
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	if len(seqs) == 0 {
		return loaded{}, nil
	}
	if source == nil {
		return loaded{}, fmt.Errorf("%w: the view has none", ErrSource)
	}
	records, err := source.Records(ctx, seqs)
	if err != nil {
		return loaded{}, fmt.Errorf("%w: %w", ErrSource, err)
	}
	for i, seq := range seqs {
		if i >= len(records) || records[i].Seq != seq {
			return loaded{}, fmt.Errorf("%w: %w: record %d is missing", ErrSource, patch.ErrCorrupt, seq)
		}
	}
	return loaded{seqs, records}, nil
}

// at returns an event of a record that was read.
func (l loaded) at(seq uint64, index int32) (*patch.Event, error) {
	if i, ok := slices.BinarySearch(l.seqs, seq); ok {
		switch r := l.records[i]; {
		case r.Event != nil && index == 0:
			return r.Event, nil
		case r.Patch != nil:
			if events := r.Patch.NewEvents(); int(index) < len(events) {
				return events[index], nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %w: record %d has no event %d", ErrSource, patch.ErrCorrupt, seq, index)
}
