package fold

import "github.com/patchlog-dev/patchlog/patch"

// cut is the effect of an applied patch on the sequence: the nodes that it added, and the run that it removed.
// All nodes that it made refer to it; the first of them carries the run's net delta if the patch keeps the
// state. A pin, an unpin, and the revert of one add and remove nothing.
//
// Until [View.load], the cuts of a restored view have only seq, pos, the flags and carriedDelta.
type cut struct {
	id         string // the patch's
	group      string // the patch's, or ""
	seq        uint64 // the patch's
	pos        uint64 // of the nodes that the patch made: see [node.pos]
	nodeCount  int32  // how many nodes the patch made: its events, or a marker
	keepsState bool
	addsEvents bool // the nodes that the patch made are events
	isSplice   bool
	isRevert   bool

	isCompactionCut bool // a removal by compaction without a summary, because the events have no content

	target  *cut // of a revert: the patch that it reverted; its removed run follows the revert's marker
	removed run
	pin     *pinChange

	standIns     []standIn // among the events that the patch added
	carriedDelta delta     // under keep, what the first node that the patch made carries: the net of removed

	// The list of the patches that a view applied. Views share its tail. nil is the empty list.
	older *cut
	count int // patches in the list

	// Of each patch whose count is a multiple of pageSize: the last pageSize patches by id, and the one before them.
	page       map[string]*cut
	beforePage *cut
}

// pageSize is the number of patches in a page, in which a patch is found by its id without a walk.
const pageSize = 256

// newCut returns the cut of a patch with the given edit. Under keep, the first node that the patch makes
// carries the net state delta of the run; under drop it carries nothing.
func newCut(v *View, e edit, seq uint64) *cut {
	p := e.patch
	c := &cut{id: p.ID(), group: p.Group(), seq: seq, isSplice: p.Type() == patch.Splice, isRevert: e.target != nil, target: e.target, pin: e.pin}
	if e.pin != nil {
		return c
	}
	// The sequence stays sorted by pos: of "1:a, 2:b, 3:c", a summary of a and b takes pos 2, between nothing and c. An
	// insertion before b takes pos 1, that of the node before it. A revert's marker stands in front of the nodes that it
	// restores, which keep their own pos, so it must not take the last one's.
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

// addedNodes yields the nodes that the patch added, in their order: those that it made, and those that a
// revert restored. They have no events.
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

// removedNodes yields the nodes that the patch removed, in their order. They have no events.
func (c *cut) removedNodes(yield func(node) bool) { c.removed.each(yield) }

// after puts the cut in front of a list of older ones, and returns it.
func (c *cut) after(older *cut) *cut {
	c.older, c.count = older, 1
	if older != nil {
		c.count = older.count + 1
	}
	if c.count%pageSize == 0 {
		c.page, c.beforePage = make(map[string]*cut, pageSize), c
		for range pageSize {
			c.page[c.beforePage.id] = c.beforePage // the oldest of several with one id
			c.beforePage = c.beforePage.older
		}
	}
	return c
}

// find returns the first patch of the list with the id, or nil.
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

// ascending returns the patches of the list in the order of the log.
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
