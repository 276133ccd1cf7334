package fold

import "github.com/patchlog-dev/patchlog/patch"

// cut is the effect of an applied patch on the sequence: the nodes that it added, and the run that it removed. The
// nodes that it created refer to it. If the patch keeps the state, the first of them carries the run's net delta. A
// pin, an unpin, and the revert of one add and remove nothing.
//
// Before [View.load], the cuts of a restored view have only seq, pos, the flags and carriedDelta.
type cut struct {
	id         string // of the patch
	group      string // of the patch; "" if it has none
	seq        uint64 // of the patch
	pos        uint64 // of the nodes that the patch created: see [node.pos]
	nodeCount  int32  // number of nodes that the patch created: its events, or a marker
	keepsState bool
	addsEvents bool // the created nodes are events, not a marker
	isSplice   bool
	isRevert   bool

	isCompactionCut bool // compaction removed events without content and added no summary

	target  *cut // of a revert: the reverted patch; its removed run follows the revert's marker
	removed run
	pin     *pinChange

	standIns     []standIn // among the events that the patch added
	carriedDelta delta     // net delta of the removed run, carried by the first created node if the patch keeps the state

	// The list of the view's applied patches, newest first. Views share its tail.
	older *cut
	count int // patches in the list

	// If count is a multiple of pageSize: the newest pageSize patches by id, and the next older patch.
	page       map[string]*cut
	beforePage *cut
}

// pageSize is the number of patches per page. A page is a map, so that finding a patch by id is fast.
const pageSize = 256

// newCut returns the cut of a patch with the given edit. If the patch keeps the state, the first node that it creates
// carries the run's net delta.
func newCut(v *View, e edit, seq uint64) *cut {
	p := e.patch
	c := &cut{id: p.ID(), group: p.Group(), seq: seq, isSplice: p.Type() == patch.Splice, isRevert: e.target != nil, target: e.target, pin: e.pin}
	if e.pin != nil {
		return c
	}
	// The sequence stays sorted by pos: in "1:a, 2:b, 3:c", a summary of a and b takes pos 2. An insertion before b
	// takes pos 1, that of the node before it. A revert's marker is placed before the nodes that it restores, which
	// keep their own pos, so it too takes the pos of the node before it.
	c.nodeCount = 1
	switch {
	case e.hi > e.lo && !c.isRevert:
		c.pos = v.nodes.nodeAt(e.hi - 1).pos()
	case e.lo > 0:
		c.pos = v.nodes.nodeAt(e.lo - 1).pos()
	}
	c.removed = v.nodes.runOf(e.lo, e.hi)
	c.isCompactionCut = c.isSplice && p.Author() == patch.CompactionAuthor && p.StatePolicy() == patch.Keep && len(p.NewEvents()) == 0
	if c.keepsState = !c.isRevert && p.StatePolicy() == patch.Keep; c.keepsState {
		c.carriedDelta = v.nodes.netBetween(e.lo, e.hi)
	}
	return c
}

// addedNodes yields the nodes that the patch added, in order, without events: those that it created, and those that it
// restored as a revert.
func (c *cut) addedNodes(yield func(node) bool) {
	for i := range c.nodeCount {
		if !yield(node{seq: c.seq, index: i, cut: c}) {
			return
		}
	}
	if c.target != nil {
		c.target.removedNodes(yield)
	}
}

// removedNodes yields the nodes that the patch removed, in order, without events.
func (c *cut) removedNodes(yield func(node) bool) { c.removed.each(yield) }

// after prepends the cut to a list of older ones and returns it.
func (c *cut) after(older *cut) *cut {
	c.older, c.count = older, 1
	if older != nil {
		c.count = older.count + 1
	}
	if c.count%pageSize == 0 {
		c.page, c.beforePage = make(map[string]*cut, pageSize), c
		for range pageSize {
			c.page[c.beforePage.id] = c.beforePage // of equal ids, the oldest remains
			c.beforePage = c.beforePage.older
		}
	}
	return c
}

// find returns the oldest patch of the list with the id, or nil.
func (c *cut) find(id string) (first *cut) {
	for c != nil {
		if c.page == nil {
			if c.id == id {
				first = c
			}
			c = c.older
			continue
		}
		if found := c.page[id]; found != nil {
			first = found
		}
		c = c.beforePage
	}
	return first
}

// ascending returns the patches of the list in log order.
func (c *cut) ascending() []*cut {
	if c == nil {
		return nil
	}
	cuts := make([]*cut, c.count)
	for at := c; at != nil; at = at.older {
		cuts[at.count-1] = at
	}
	return cuts
}
