package fold

import (
	"context"
	"fmt"
	"sync"

	"github.com/patchlog-dev/patchlog/patch"
)

// past is what a snapshot leaves out of its view: which markers stood where, what
// patches took out, what was skipped. It is folded from the log once somebody needs it.
type past struct {
	empty  View   // of the session, before its first record
	seq    uint64 // where the snapshot stands
	gaps   int    // how many stretches of markers the snapshot has
	source Source

	mu      sync.Mutex
	view    *View    // at seq, without its nodes
	markers [][]node // each stretch of markers that no event parts, in order
}

// So many records are read at a time.
const pastPage = 512

// load folds the log up to the snapshot. Errors match [ErrSource]; after one it can be
// tried again.
func (p *past) load() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view != nil {
		return nil
	}
	v := p.empty
	for v.seq < p.seq {
		seqs := make([]uint64, min(pastPage, p.seq-v.seq))
		for i := range seqs {
			seqs[i] = v.seq + 1 + uint64(i)
		}
		read, err := loadEvents(context.Background(), p.source, seqs)
		if err != nil {
			return err
		}
		if v, err = Fold(v, read.records); err != nil {
			return err
		}
		v = v.Release(p.source)
	}
	p.markers = nil
	inside := false
	v.root.walk(0, v.root.len(), func(n *node) bool {
		if n.event == nil {
			if !inside {
				p.markers = append(p.markers, nil)
			}
			last := len(p.markers) - 1
			p.markers[last] = append(p.markers[last], *n)
		}
		inside = n.event == nil
		return true
	})
	if len(p.markers) != p.gaps {
		return fmt.Errorf("%w: %w: the log up to record %d has markers at %d places, and its snapshot at %d", ErrSource, patch.ErrCorrupt, p.seq, len(p.markers), p.gaps)
	}
	v.root = nil // the view that was restored has it
	p.view = &v
	return nil
}

// skipped returns the patches that were skipped up to the snapshot.
func (p *past) skipped() ([]patch.Skip, error) {
	if err := p.load(); err != nil {
		return nil, err
	}
	return p.view.Skipped()
}

// resolved returns what the node stands for: itself, or the markers that a snapshot has
// as one. Its past must have been loaded.
func (n node) resolved() []node {
	if n.seq == 0 {
		return n.cut.past.markers[n.cut.gap]
	}
	return []node{n}
}

// makeWhole gives the view what its snapshot left out. The view stays equal to what it
// was. Errors match [ErrSource].
func (v *View) makeWhole() error {
	if v.past == nil {
		return nil
	}
	if err := v.past.load(); err != nil {
		return err
	}
	nodes := make([]node, 0, v.root.len())
	v.root.walk(0, v.root.len(), func(n *node) bool {
		nodes = append(nodes, n.resolved()...)
		return true
	})
	v.root = (*tree)(nil).splice(nil, 0, 0, nodes)
	patches := v.past.view.patches
	for _, c := range v.patches.ascending() {
		patches = patches.with(c)
	}
	v.held += v.past.view.held
	v.patches, v.past = patches, nil
	return nil
}
