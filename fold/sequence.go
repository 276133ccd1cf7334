package fold

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/patch"
)

// node is an element of the sequence: a visible event or summary, or a marker. Its identity is the record that
// made it and its index among the nodes that the record made.
type node struct {
	event   *patch.Event // nil in a marker
	seq     uint64
	index   int32
	summary bool // a summarise made it
	cut     *cut // of the patch that made it; nil for a regular event
}

// isMarker reports whether the node is a marker, the node of a patch that adds no event. The node's patch must be
// loaded.
func (n *node) isMarker() bool { return n.cut != nil && !n.cut.addsEvents }

// pos is the sort key of the sequence; several nodes may share one. A regular event has its seq, since events are
// only added at the end. A patch's nodes have the pos of the last node that it removed, or of the node before them.
// A revert's marker has the pos of the node before it. So a restored node fits where it was, and any node can be
// found by its pos.
func (n *node) pos() uint64 {
	if n.cut == nil {
		return n.seq
	}
	return n.cut.pos
}

// carriedDelta returns the net delta of the run that the node replaced, if the patch kept the state.
func (n *node) carriedDelta() delta {
	if n.cut == nil || n.index != 0 {
		return nil
	}
	return n.cut.carriedDelta
}

// sequence is a persistent list of nodes in chunks, which views share. An append copies the last chunk, a splice
// the chunks that it touches, and both the list of chunks where that changes. A nil sequence is empty.
type sequence struct {
	full   []*chunk
	ends   []counts // totals up to the end of each full chunk
	tail   *chunk   // the last one, which fills up before it is one of the others
	counts          // of all
	owner  *owner
}

// chunk is 1 to maxChunk nodes.
type chunk struct {
	nodes []node
	counts
	owner *owner
	net   atomic.Pointer[delta]
	bytes atomic.Int64 // about what the nodes take in memory; 0 if not computed
}

const maxChunk = 64

// owner is the right to change a sequence and its chunks in place. A fold of many records has one until it is
// done, because its new chunks are not shared yet.
type owner struct{ _ byte }

// counts is the number of nodes, and of those with an event.
type counts struct{ size, visible int }

func (s *counts) add(o counts) { s.size, s.visible = s.size+o.size, s.visible+o.visible }

func newChunk(own *owner, nodes []node) *chunk {
	room := len(nodes)
	if own != nil {
		room = maxChunk
	}
	return &chunk{nodes: append(make([]node, 0, room), nodes...), counts: counts{len(nodes), countVisible(nodes)}, owner: own}
}

func countVisible(nodes []node) int {
	n := 0
	for i := range nodes {
		if nodes[i].event != nil {
			n++
		}
	}
	return n
}

func (s *sequence) len() int {
	if s == nil {
		return 0
	}
	return s.size
}

func (s *sequence) visibleLen() int {
	if s == nil {
		return 0
	}
	return s.visible
}

// chunk returns the chunk with an index, and the totals before it.
func (s *sequence) chunk(i int) (c *chunk, before counts) {
	if i > 0 {
		before = s.ends[i-1]
	}
	if i == len(s.full) {
		return s.tail, before
	}
	return s.full[i], before
}

// splice returns the sequence with the nodes from lo up to hi replaced by copies of others. It changes chunks of
// own in place where possible; own may be nil.
func (s *sequence) splice(own *owner, lo, hi int, others []node) *sequence {
	if lo == hi && len(others) == 0 || s.spliceInPlace(own, lo, hi, others) {
		return s
	}
	if s == nil {
		s = &sequence{tail: &chunk{}}
	}
	first := sort.Search(len(s.ends), func(i int) bool { return s.ends[i].size > lo })
	last := first + sort.Search(len(s.ends)-first, func(i int) bool { return s.ends[first+i].size >= hi })
	_, before := s.chunk(first)
	b, until := s.chunk(last)
	rest := len(others) + until.size + b.size - hi
	if lo-before.size+rest < maxChunk/4 && first > 0 && last < len(s.full) { // small chunks would pile up
		first--
		_, before = s.chunk(first)
	}
	nodes := make([]node, 0, lo-before.size+rest) // in the place of the chunks from first to last
	s.walk(before.size, lo, func(n *node) bool {
		nodes = append(nodes, *n)
		return true
	})
	nodes = append(append(nodes, others...), b.nodes[hi-until.size:]...)
	count := (len(nodes) + maxChunk - 1) / maxChunk
	out := &sequence{full: s.full[:first:first], ends: s.ends[:first:first], counts: before, tail: s.tail, owner: own}
	if own != nil || last < len(s.full) {
		out.full = append(make([]*chunk, 0, len(s.full)+count), out.full...)
		out.ends = append(make([]counts, 0, len(s.full)+count), out.ends...)
	}
	switch {
	case last < len(s.full):
		for i := range count {
			out.push(newChunk(own, nodes[len(nodes)*i/count:len(nodes)*(i+1)/count]))
		}
		for _, c := range s.full[last+1:] {
			out.push(c)
		}
		out.add(s.tail.counts)
	case count == 0 && first == 0:
		return nil
	case count == 0: // the chunk before is the last one now
		first--
		out.full, out.ends, out.tail, out.counts = out.full[:first:first], out.ends[:first:first], s.full[first], s.ends[first]
	default:
		out.tail = newChunk(own, nodes[:min(maxChunk, len(nodes))])
		out.add(out.tail.counts)
		out.append(own, nodes[out.tail.size:])
	}
	return out
}

// push adds a full chunk to a new sequence without a tail.
func (s *sequence) push(c *chunk) {
	s.add(c.counts)
	s.full, s.ends = append(s.full, c), append(s.ends, s.counts)
}

// append adds nodes in place at the end of the sequence.
func (s *sequence) append(own *owner, nodes []node) {
	for len(nodes) > 0 {
		n := min(maxChunk-s.tail.size, len(nodes))
		if n == 0 {
			s.full, s.ends = append(s.full, s.tail), append(s.ends, s.counts)
			n = min(maxChunk, len(nodes))
			s.tail = newChunk(own, nodes[:n])
			s.add(s.tail.counts)
		} else {
			more := counts{n, countVisible(nodes[:n])}
			s.tail.nodes = append(s.tail.nodes, nodes[:n]...)
			s.tail.add(more)
			s.add(more)
		}
		nodes = nodes[n:]
	}
}

// spliceInPlace changes one chunk of own, or appends, and reports whether it could.
func (s *sequence) spliceInPlace(own *owner, lo, hi int, others []node) bool {
	if s == nil || own == nil || s.owner != own {
		return false
	}
	c, i, before := s.chunkAt(lo)
	n := c.size - (hi - lo) + len(others)
	switch {
	case c.owner != own || hi > before.size+c.size:
		return false
	case lo == s.size:
		s.append(own, others)
		return true
	case n > maxChunk || n < maxChunk/4:
		return false
	}
	was := c.counts
	c.nodes = slices.Replace(c.nodes, lo-before.size, hi-before.size, others...)
	c.counts = counts{n, countVisible(c.nodes)}
	change := counts{c.size - was.size, c.visible - was.visible}
	for ; i < len(s.ends); i++ {
		s.ends[i].add(change)
	}
	s.add(change)
	return true
}

// visibleAt returns the i-th visible node and its rank among all nodes.
func (s *sequence) visibleAt(i int) (n *node, rank int) {
	c, before := s.chunk(sort.Search(len(s.ends), func(k int) bool { return s.ends[k].visible > i }))
	i -= before.visible
	for j := range c.nodes {
		if c.nodes[j].event == nil {
			continue
		}
		if i == 0 {
			return &c.nodes[j], before.size + j
		}
		i--
	}
	panic("fold: visible index out of range")
}

// chunkAt returns the chunk with the node at a rank, the chunk's index, and the totals before it.
func (s *sequence) chunkAt(rank int) (c *chunk, i int, before counts) {
	i = sort.Search(len(s.ends), func(i int) bool { return s.ends[i].size > rank })
	c, before = s.chunk(i)
	return c, i, before
}

// walk calls visit with each node from lo up to hi, until it returns false.
func (s *sequence) walk(lo, hi int, visit func(*node) bool) {
	if lo >= hi {
		return
	}
	c, i, before := s.chunkAt(lo)
	for at := lo - before.size; ; at = 0 {
		for ; at < len(c.nodes); at++ {
			if lo == hi || !visit(&c.nodes[at]) {
				return
			}
			lo++
		}
		if i++; i > len(s.full) {
			return
		}
		c, _ = s.chunk(i)
	}
}

// all yields the nodes in order.
func (s *sequence) all(yield func(*node) bool) { s.walk(0, s.len(), yield) }

// nodeAt returns the node at a rank.
func (s *sequence) nodeAt(rank int) *node {
	c, _, before := s.chunkAt(rank)
	return &c.nodes[rank-before.size]
}

// visibleBefore returns the number of visible nodes before a rank.
func (s *sequence) visibleBefore(rank int) int {
	if rank == s.len() {
		return s.visibleLen()
	}
	c, _, before := s.chunkAt(rank)
	return before.visible + countVisible(c.nodes[:rank-before.size])
}

// firstAtPos returns the rank of the first node with a pos from pos on, or the end.
func (s *sequence) firstAtPos(pos uint64) (rank int) {
	if s == nil {
		return 0
	}
	c, before := s.chunk(sort.Search(len(s.full), func(i int) bool { return s.full[i].nodes[s.full[i].size-1].pos() >= pos }))
	return before.size + sort.Search(len(c.nodes), func(i int) bool { return c.nodes[i].pos() >= pos })
}

// chunks yields the chunks in order.
func (s *sequence) chunks(yield func(*chunk) bool) {
	if s == nil {
		return
	}
	for _, c := range s.full {
		if !yield(c) {
			return
		}
	}
	yield(s.tail)
}
