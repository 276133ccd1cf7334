package fold

import "github.com/patchlog-dev/patchlog/patch"

// cut is the effect of an applied patch on the sequence: the nodes that it added, and the run of nodes that it
// removed. Each node that the patch created refers to the cut. If the patch keeps the state, the first of these
// nodes carries the net delta of the run. A pin, an unpin, and the revert of either add and remove no nodes.
//
// In a restored view, cuts have only seq, pos, the flags and carriedDelta until [View.load] decodes the other
// fields.
type cut struct {
	id         string // id of the patch
	group      string // group of the patch, or ""
	seq        uint64 // seq of the patch
	pos        uint64 // pos of the nodes that the patch created; see [node.pos]
	nodeCount  int32  // number of nodes that the patch created: its events, or one marker
	keepsState bool
	addsEvents bool // whether the created nodes are events, not a marker
	isSplice   bool
	isRevert   bool

	isCompactionCut bool // whether compaction removed events without content and added no summary

	target  *cut // for a revert: the reverted patch; the nodes that it removed follow the revert's marker
	removed run
	pin     *pinChange

	standIns     []standIn // the events that the patch added to represent removed events
	carriedDelta delta     // net delta of the removed run, if the patch keeps the state; the first created node carries it

	// The view's applied patches form a list, newest first. Views share its tail.
	older *cut
	count int // number of patches in the list

	// If count is a multiple of pageSize, page contains the newest pageSize patches by id, and beforePage is
	// the patch before them.
	page       map[string]*cut
	beforePage *cut
}

// pageSize is the number of patches in a page. Pages make it fast to find a patch by id.
const pageSize = 256

// newCut returns the cut of a patch with the given edit.
func newCut(v *View, e edit, seq uint64) *cut {
	p := e.patch
	c := &cut{id: p.ID(), group: p.Group(), seq: seq, isSplice: p.Type() == patch.Splice, isRevert: e.target != nil, target: e.target, pin: e.pin}
	if e.pin != nil {
		return c
	}
	// The sequence stays sorted by pos. In "1:a, 2:b, 3:c", a summary of a and b gets pos 2. An insertion
	// before b gets pos 1, which is the pos of the node before it. A revert's marker also gets the pos of the
	// node before it, because the restored nodes after the marker keep their own pos.
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

// addedNodes yields the nodes that the patch added, in order and without events. For a revert, these include
// the nodes that it restored.
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

// removedNodes yields the nodes that the patch removed, in order and without events.
func (c *cut) removedNodes(yield func(node) bool) { c.removed.each(yield) }

// prependTo puts the cut at the head of a list of older cuts, and returns it.
func (c *cut) prependTo(older *cut) *cut {
	c.older, c.count = older, 1
	if older != nil {
		c.count = older.count + 1
	}
	if c.count%pageSize == 0 {
		c.page, c.beforePage = make(map[string]*cut, pageSize), c
		for range pageSize {
			c.page[c.beforePage.id] = c.beforePage // if two patches have the same id, the older one remains
			c.beforePage = c.beforePage.older
		}
	}
	return c
}

// find returns the oldest patch with the given id in the list, or nil.
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
