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

// tree is a persistent sequence of nodes: a B+ tree whose vertices are never changed
// once a view has them, so that views share them. A nil tree is the empty sequence. All
// leaves are equally deep.
type tree struct {
	owner *owner  // whoever made the vertex may still change it
	nodes []node  // of a leaf; 1 to maxFill
	kids  []*tree // of an inner vertex; 1 to maxFill
	sums
	net   atomic.Pointer[delta]
	bytes atomic.Int64 // about what all below takes in memory; 0 if no one has asked yet
}

// sums is how much stands below a vertex.
type sums struct {
	size    int // nodes, markers included
	visible int // nodes that have an event
}

func (s *sums) add(o sums) {
	s.size += o.size
	s.visible += o.visible
}

func (s *sums) subtract(o sums) {
	s.size -= o.size
	s.visible -= o.visible
}

func sumsOf(nodes []node) sums { return sums{len(nodes), countVisible(nodes)} }

// owner is the right to change vertices in place. A fold of many records has one until
// it is done: no one else has seen the vertices that it made.
type owner struct{ _ byte }

const (
	maxFill = 32
	minFill = maxFill / 4 // what an edit leaves smaller is merged with a neighbour
)

func (t *tree) len() int {
	if t == nil {
		return 0
	}
	return t.size
}

func (t *tree) visibleLen() int {
	if t == nil {
		return 0
	}
	return t.visible
}

func newLeaf(own *owner, nodes []node) *tree {
	return &tree{owner: own, nodes: nodes, sums: sumsOf(nodes)}
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

func newInner(own *owner, kids []*tree) *tree {
	t := &tree{owner: own, kids: kids}
	for _, k := range kids {
		t.add(k.sums)
	}
	return t
}

// chunks cuts n elements into as few pieces of at most maxFill as do, of about equal
// size, and calls piece with the bounds of each.
func chunks(n int, piece func(from, to int)) {
	count := (n + maxFill - 1) / maxFill
	for i := range count {
		piece(n*i/count, n*(i+1)/count)
	}
}

// leafRoom is how many nodes a new leaf of n nodes gets room for: an owner may add some.
func leafRoom(own *owner, n int) int {
	if own != nil {
		return maxFill
	}
	return n
}

func leavesOf(own *owner, pieces ...[]node) []*tree {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	out := make([]*tree, 0, n/maxFill+1)
	chunks(n, func(from, to int) {
		leaf := make([]node, 0, leafRoom(own, to-from))
		for len(leaf) < to-from {
			for len(pieces[0]) == 0 {
				pieces = pieces[1:]
			}
			take := min(to-from-len(leaf), len(pieces[0]))
			leaf = append(leaf, pieces[0][:take]...)
			pieces[0] = pieces[0][take:]
		}
		out = append(out, newLeaf(own, leaf))
	})
	return out
}

// appended returns the leaf filled up with nodes, and leaves of those left over, which
// are as full as can be but for the last.
func (t *tree) appended(own *owner, nodes []node) []*tree {
	out := []*tree{t}
	if room := min(maxFill-len(t.nodes), len(nodes)); room > 0 {
		full := &tree{owner: own, sums: t.sums, nodes: make([]node, 0, leafRoom(own, len(t.nodes)+room))}
		full.nodes = append(append(full.nodes, t.nodes...), nodes[:room]...)
		full.add(sumsOf(nodes[:room]))
		if known := t.bytes.Load(); known != 0 {
			full.bytes.Store(known + int64(footprintOf(nodes[:room])))
		}
		out[0] = full
		nodes = nodes[room:]
	}
	for len(nodes) > 0 {
		n := min(maxFill, len(nodes))
		out = append(out, leavesOf(own, nodes[:n])...)
		nodes = nodes[n:]
	}
	return out
}

func innersOf(own *owner, kids []*tree) []*tree {
	var out []*tree
	chunks(len(kids), func(from, to int) { out = append(out, newInner(own, kids[from:to:to])) })
	return out
}

// splice returns the sequence with the nodes from lo up to hi replaced by others. It
// takes time in the logarithm of t's size and proportional to the number of others.
// Vertices that own has made are changed in place where that will do; own may be nil.
func (t *tree) splice(own *owner, lo, hi int, others []node) *tree {
	if own != nil && t.spliceInPlace(own, lo, hi, others) {
		return t
	}
	var level []*tree
	if t == nil {
		level = leavesOf(own, others)
	} else {
		level = t.edit(own, lo, hi, others)
	}
	for len(level) > 1 {
		level = innersOf(own, level)
	}
	if len(level) == 0 {
		return nil
	}
	root := level[0]
	for len(root.kids) == 1 {
		root = root.kids[0]
	}
	return root
}

// spliceInPlace changes one leaf of own's and the vertices above it, and reports
// whether it could.
func (t *tree) spliceInPlace(own *owner, lo, hi int, others []node) bool {
	if t == nil || t.owner != own {
		return false
	}
	if t.kids == nil {
		n := len(t.nodes) - (hi - lo) + len(others)
		if n < minFill || n > maxFill {
			return false
		}
		t.add(sumsOf(others))
		t.subtract(sumsOf(t.nodes[lo:hi]))
		t.nodes = slices.Replace(t.nodes, lo, hi, others...)
		return true
	}
	i, offset := t.kidFor(lo)
	kid := t.kids[i]
	if hi > offset+kid.size {
		return false
	}
	before := kid.sums
	if !kid.spliceInPlace(own, lo-offset, hi-offset, others) {
		return false
	}
	t.subtract(before)
	t.add(kid.sums)
	return true
}

// appendInPlace adds nodes at the end of a tree of own's as long as there is room for
// them, and returns those for which there was none.
func (t *tree) appendInPlace(own *owner, nodes []node) (rest []node) {
	if t == nil || t.owner != own {
		return nodes
	}
	if t.kids == nil {
		n := min(maxFill-len(t.nodes), len(nodes))
		t.nodes = append(t.nodes, nodes[:n]...)
		t.add(sumsOf(nodes[:n]))
		return nodes[n:]
	}
	last := t.kids[len(t.kids)-1]
	before := last.sums
	rest = last.appendInPlace(own, nodes)
	t.subtract(before)
	t.add(last.sums)
	for last.kids == nil && len(rest) > 0 && len(t.kids) < maxFill {
		n := min(maxFill, len(rest))
		leaf := newLeaf(own, append(make([]node, 0, maxFill), rest[:n]...))
		t.kids = append(t.kids, leaf)
		t.add(leaf.sums)
		rest = rest[n:]
	}
	return rest
}

// edit returns the vertices, as deep as t, that take t's place.
func (t *tree) edit(own *owner, lo, hi int, others []node) []*tree {
	switch {
	case t.kids != nil:
	case lo == len(t.nodes):
		return t.appended(own, others)
	default:
		return leavesOf(own, t.nodes[:lo], others, t.nodes[hi:])
	}
	i, iOff := t.kidFor(lo)
	j, jOff := t.kidFor(hi)
	var middle []*tree
	if i == j {
		middle = t.kids[i].edit(own, lo-iOff, hi-iOff, others)
	} else {
		middle = t.kids[i].edit(own, lo-iOff, t.kids[i].size, others)
		middle = append(middle, t.kids[j].edit(own, 0, hi-jOff, nil)...)
	}
	kids := make([]*tree, 0, len(t.kids)+len(middle)+1)
	kids = append(kids, t.kids[:i]...)
	kids = append(kids, middle...)
	kids = append(kids, t.kids[j+1:]...)
	return innersOf(own, mergeSmall(own, kids, max(i-1, 0), i+len(middle)))
}

// kidFor returns the first kid that holds position pos or ends at it, and the position
// at which that kid begins.
func (t *tree) kidFor(pos int) (i, offset int) {
	for i < len(t.kids)-1 && pos > offset+t.kids[i].size {
		offset += t.kids[i].size
		i++
	}
	return i, offset
}

// mergeSmall joins kids from index lo to hi that are too small with a neighbour. The last
// kid may stay small: logs grow at the end.
func mergeSmall(own *owner, kids []*tree, lo, hi int) []*tree {
	for i := lo; i <= hi && i < len(kids)-1; i++ {
		if kids[i].fill() >= minFill {
			continue
		}
		left := max(i-1, 0)
		merged := kids[left].concat(own, kids[left+1])
		kids = append(kids[:left], append(merged, kids[left+2:]...)...)
		i = left - 1 + len(merged) - 1
		hi += len(merged) - 2
	}
	return kids
}

func (t *tree) fill() int { return len(t.nodes) + len(t.kids) }

// concat joins two neighbours into one or two vertices.
func (t *tree) concat(own *owner, o *tree) []*tree {
	if t.kids == nil {
		return leavesOf(own, t.nodes, o.nodes)
	}
	kids := make([]*tree, 0, len(t.kids)+len(o.kids))
	return innersOf(own, append(append(kids, t.kids...), o.kids...))
}

// at returns the i-th visible node and its place among all nodes.
func (t *tree) at(i int) (n *node, rank int) {
	for t.kids != nil {
		for _, k := range t.kids {
			if i < k.visible {
				t = k
				break
			}
			i -= k.visible
			rank += k.size
		}
	}
	for j := range t.nodes {
		if t.nodes[j].event == nil {
			continue
		}
		if i == 0 {
			return &t.nodes[j], rank + j
		}
		i--
	}
	panic("fold: visible index out of range")
}

// walk calls visit with each node from lo up to hi, until it returns false.
func (t *tree) walk(lo, hi int, visit func(*node) bool) bool {
	if t == nil || lo >= hi {
		return true
	}
	if t.kids == nil {
		for i := lo; i < hi; i++ {
			if !visit(&t.nodes[i]) {
				return false
			}
		}
		return true
	}
	for _, k := range t.kids {
		if lo < k.size && !k.walk(max(lo, 0), min(hi, k.size), visit) {
			return false
		}
		lo -= k.size
		hi -= k.size
		if hi <= 0 {
			break
		}
	}
	return true
}

// all yields the nodes in order.
func (t *tree) all(yield func(*node) bool) { t.walk(0, t.len(), yield) }

// slice returns a copy of the nodes from lo up to hi.
func (t *tree) slice(lo, hi int) []node {
	if lo == hi {
		return nil
	}
	out := make([]node, 0, hi-lo)
	t.walk(lo, hi, func(n *node) bool {
		out = append(out, *n)
		return true
	})
	return out
}

// byRank returns the node at a place among all nodes.
func (t *tree) byRank(rank int) *node {
	for t.kids != nil {
		for _, k := range t.kids {
			if rank < k.size {
				t = k
				break
			}
			rank -= k.size
		}
	}
	return &t.nodes[rank]
}

// visibleBefore returns how many visible nodes stand before a place among all nodes.
func (t *tree) visibleBefore(rank int) int {
	visible := 0
	for t != nil && rank < t.size {
		if t.kids == nil {
			return visible + countVisible(t.nodes[:rank])
		}
		i := 0
		for ; rank >= t.kids[i].size; i++ {
			rank -= t.kids[i].size
			visible += t.kids[i].visible
		}
		t = t.kids[i]
	}
	return visible + t.visibleLen()
}

// seek returns the place of the first node with a pos from pos on, or the end.
func (t *tree) seek(pos uint64) (rank int) {
	for t != nil && t.kids != nil {
		i := sort.Search(len(t.kids)-1, func(i int) bool { return t.kids[i].lastPos() >= pos })
		for _, k := range t.kids[:i] {
			rank += k.size
		}
		t = t.kids[i]
	}
	if t == nil {
		return rank
	}
	return rank + sort.Search(len(t.nodes), func(i int) bool { return t.nodes[i].pos() >= pos })
}

func (t *tree) lastPos() uint64 {
	for t.kids != nil {
		t = t.kids[len(t.kids)-1]
	}
	return t.nodes[len(t.nodes)-1].pos()
}
