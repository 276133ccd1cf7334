package fold

import "github.com/patchlog-dev/patchlog/patch"

// cut is what an applied patch did to the sequence: the nodes that it put in, and the run
// that it took out. All nodes that it made know it; the first of them carries the run's
// net delta if the patch keeps it. A pin, an unpin, and the revert of one put in and take
// out nothing.
//
// Until [View.load], the cuts of a restored view know only seq, pos, keep, revert and carries.
type cut struct {
	id     string // the patch's
	group  string // the patch's, or ""
	seq    uint64 // the patch's
	pos    uint64 // of the nodes that the patch made; see [node.pos]
	made   int32  // how many nodes the patch made: its events, or a marker
	keep   bool
	puts   bool // the nodes that the patch made are events
	splice bool
	revert bool

	wordless bool // of compaction's, without a summary: what it took out says nothing

	target *cut // a revert's: the patch that it took back, whose run stands behind its marker
	out    run  // what the patch took out
	pin    *pinChange

	standIns []standIn // among the events that the patch put in
	carries  delta     // under keep, what the first node that the patch made carries: the net of out

	// Of the list of the patches that a view applied. Views share its tail. nil is the empty list.
	older *cut
	count int         // patches in the list
	index *patchIndex // of all but the newest count%indexPage patches
}

// newCut returns the cut of a patch that does an edit of a view. Under keep, the first node that the
// patch makes carries the net state delta of the run; under drop it carries nothing.
func newCut(v *View, e edit, seq uint64) *cut {
	p := e.patch
	c := &cut{id: p.ID(), group: p.Group(), seq: seq, splice: p.Type() == patch.Splice, revert: e.target != nil, target: e.target, pin: e.pin}
	if e.pin != nil {
		return c
	}
	c.made = 1
	switch {
	case e.hi > e.lo && !c.revert:
		c.pos = v.nodes.byRank(e.hi - 1).pos()
	case e.lo > 0: // a revert's marker stands before whatever its nodes are sorted by
		c.pos = v.nodes.byRank(e.lo - 1).pos()
	}
	c.out = v.nodes.runOf(e.lo, e.hi)
	c.wordless = c.splice && p.Author() == patch.CompactionAuthor && p.StatePolicy() == patch.Keep && len(p.NewEvents()) == 0
	if c.keep = !c.revert && p.StatePolicy() == patch.Keep; c.keep {
		c.carries = v.nodes.netBetween(e.lo, e.hi)
	}
	return c
}

// in yields the nodes that the patch put in, in their order: those that it made, and
// those that a revert brought back. They may be without bodies.
func (c *cut) in(yield func(node) bool) {
	for i := range c.made {
		if !yield(node{seq: c.seq, index: i, cut: c}) {
			return
		}
	}
	if c.target != nil {
		c.target.tookOut(yield)
	}
}

// tookOut yields the nodes that the patch took out, in their order. They may be without
// bodies.
func (c *cut) tookOut(yield func(node) bool) { c.out.each(yield) }

// patchIndex finds patches by id.
type patchIndex struct {
	first map[string]*cut // of those with the same id, the first
	older *patchIndex
}

const indexPage = 256

// after makes the cut the newest patch of a list, and returns it.
func (c *cut) after(older *cut) *cut {
	c.older, c.count = older, 1
	if older != nil {
		c.count, c.index = older.count+1, older.index
	}
	if c.count%indexPage == 0 {
		first := make(map[string]*cut, indexPage)
		for at, n := c, indexPage; n > 0; at, n = at.older, n-1 {
			first[at.id] = at
		}
		c.index = &patchIndex{first, c.index}
	}
	return c
}

// find returns the first patch of the list with the id, or nil.
func (c *cut) find(id string) (first *cut) {
	if c == nil {
		return nil
	}
	for at, n := c, c.count%indexPage; n > 0; at, n = at.older, n-1 {
		if at.id == id {
			first = at
		}
	}
	for index := c.index; index != nil; index = index.older {
		if c := index.first[id]; c != nil {
			first = c
		}
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
