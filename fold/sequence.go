package fold

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/patch"
)

// node is an element of the sequence that the fold keeps: a
// visible event or summary, or a marker. Nodes have identity: the record that made
// them, and their place among those that it made.
type node struct {
	event   *patch.Event // nil in a marker
	seq     uint64
	index   int32
	summary bool // made by a summarise
	cut     *cut // of the patch that made it; nil in a regular event
}

// isMarker reports whether the node is a marker: what a patch that puts no event in leaves. It is for
// nodes of patches that are loaded.
func (n *node) isMarker() bool { return n.cut != nil && !n.cut.puts }

// pos is a number by which the whole sequence is sorted, though several nodes may have the
// same: a regular event's is its seq, since events are only ever added at the end; a
// patch's nodes have that of the last node that it took out, or else of the one before
// them; a revert's marker has that of the node before it. So a node that comes back, or
// what stands for it, fits in where it was, and any node is found by its pos.
func (n *node) pos() uint64 {
	if n.cut == nil {
		return n.seq
	}
	return n.cut.pos
}

// carries returns the net delta of the run that the node replaced, if that still counts.
func (n *node) carries() delta {
	if n.cut == nil || n.index != 0 {
		return nil
	}
	return n.cut.carries
}

// sequence is nodes in their order, in chunks. It and its chunks are never changed, so that views share
// them: an append copies the last chunk, a splice the chunks that it touches, and both the list of chunks
// where that changes. A nil sequence is empty.
type sequence struct {
	full  []*chunk
	ends  []sums // how much stands up to the end of each full chunk
	tail  *chunk // the last one, which fills up before it is one of the others
	sums         // of all
	owner *owner
}

// chunk is 1 to maxChunk nodes.
type chunk struct {
	nodes []node
	sums
	owner *owner
	net   atomic.Pointer[delta]
	bytes atomic.Int64 // about what the nodes take in memory; 0 if no one has asked yet
}

const maxChunk = 64

// owner is the right to change a sequence and its chunks in place. A fold of many records has one until
// it is done: no one else has seen what it made.
type owner struct{ _ byte }

// sums is how many nodes there are, and how many of them have an event.
type sums struct{ size, visible int }

func (s *sums) add(o sums) { s.size, s.visible = s.size+o.size, s.visible+o.visible }

func newChunk(own *owner, nodes []node) *chunk {
	room := len(nodes)
	if own != nil {
		room = maxChunk
	}
	return &chunk{nodes: append(make([]node, 0, room), nodes...), sums: sums{len(nodes), countVisible(nodes)}, owner: own}
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

// chunk returns the chunk with an index, and how much stands before it.
func (s *sequence) chunk(i int) (c *chunk, before sums) {
	if i > 0 {
		before = s.ends[i-1]
	}
	if i == len(s.full) {
		return s.tail, before
	}
	return s.full[i], before
}

// splice returns the sequence with the nodes from lo up to hi replaced by others, which it copies. What own has
// made is changed in place where that will do; own may be nil.
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
	out := &sequence{full: s.full[:first:first], ends: s.ends[:first:first], sums: before, tail: s.tail, owner: own}
	if own != nil || last < len(s.full) {
		out.full = append(make([]*chunk, 0, len(s.full)+count), out.full...)
		out.ends = append(make([]sums, 0, len(s.full)+count), out.ends...)
	}
	switch {
	case last < len(s.full):
		for i := range count {
			out.push(newChunk(own, nodes[len(nodes)*i/count:len(nodes)*(i+1)/count]))
		}
		for _, c := range s.full[last+1:] {
			out.push(c)
		}
		out.add(s.tail.sums)
	case count == 0 && first == 0:
		return nil
	case count == 0: // the chunk before is the last one now
		first--
		out.full, out.ends, out.tail, out.sums = out.full[:first:first], out.ends[:first:first], s.full[first], s.ends[first]
	default:
		out.tail = newChunk(own, nodes[:min(maxChunk, len(nodes))])
		out.add(out.tail.sums)
		out.append(own, nodes[out.tail.size:])
	}
	return out
}

// push adds a full chunk to a sequence in the making, whose sums are those of its full chunks.
func (s *sequence) push(c *chunk) {
	s.add(c.sums)
	s.full, s.ends = append(s.full, c), append(s.ends, s.sums)
}

// append adds nodes at the end of a sequence that may be changed.
func (s *sequence) append(own *owner, nodes []node) {
	for len(nodes) > 0 {
		n := min(maxChunk-s.tail.size, len(nodes))
		if n == 0 {
			s.full, s.ends = append(s.full, s.tail), append(s.ends, s.sums)
			n = min(maxChunk, len(nodes))
			s.tail = newChunk(own, nodes[:n])
			s.add(s.tail.sums)
		} else {
			more := sums{n, countVisible(nodes[:n])}
			s.tail.nodes = append(s.tail.nodes, nodes[:n]...)
			s.tail.add(more)
			s.add(more)
		}
		nodes = nodes[n:]
	}
}

// spliceInPlace changes one chunk of own's, or adds to the last one, and reports whether it could.
func (s *sequence) spliceInPlace(own *owner, lo, hi int, others []node) bool {
	if s == nil || own == nil || s.owner != own {
		return false
	}
	c, i, before := s.holding(lo)
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
	was := c.sums
	c.nodes = slices.Replace(c.nodes, lo-before.size, hi-before.size, others...)
	c.sums = sums{n, countVisible(c.nodes)}
	change := sums{c.size - was.size, c.visible - was.visible}
	for ; i < len(s.ends); i++ {
		s.ends[i].add(change)
	}
	s.add(change)
	return true
}

// at returns the i-th visible node and its place among all nodes.
func (s *sequence) at(i int) (n *node, rank int) {
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

// holding returns the chunk with the node at a place among all nodes, its index, and how much stands before it.
func (s *sequence) holding(rank int) (c *chunk, i int, before sums) {
	i = sort.Search(len(s.ends), func(i int) bool { return s.ends[i].size > rank })
	c, before = s.chunk(i)
	return c, i, before
}

// walk calls visit with each node from lo up to hi, until it returns false.
func (s *sequence) walk(lo, hi int, visit func(*node) bool) {
	if lo >= hi {
		return
	}
	c, i, before := s.holding(lo)
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

// byRank returns the node at a place among all nodes.
func (s *sequence) byRank(rank int) *node {
	c, _, before := s.holding(rank)
	return &c.nodes[rank-before.size]
}

// visibleBefore returns how many visible nodes stand before a place among all nodes.
func (s *sequence) visibleBefore(rank int) int {
	if rank == s.len() {
		return s.visibleLen()
	}
	c, _, before := s.holding(rank)
	return before.visible + countVisible(c.nodes[:rank-before.size])
}

// seek returns the place of the first node with a pos from pos on, or the end.
func (s *sequence) seek(pos uint64) (rank int) {
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
