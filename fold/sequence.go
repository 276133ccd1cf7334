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

// sequence is a persistent list of nodes, which views share: a B-tree, of which a splice copies the way to the nodes
// that it changes.
//
//	                [ 5 | 4 | 6 ]                  an inner node: its children, and how many nodes each has
//	               /      |      \
//	[a b c d e]   [f g h i]   [j k l m n o]       leaves: the nodes
//
// Replacing g by x and y copies the root and the second leaf; the other leaves belong to both sequences. All leaves
// have the same depth. A nil sequence is empty.
type sequence struct {
	nodes []node  // of a leaf, 1 to maxWidth
	kids  []child // of an inner node, 1 to maxWidth
	counts
	owner *owner
	net   atomic.Pointer[delta]
	bytes atomic.Int64 // about what the nodes take in memory; 0 if not computed
}

// child is a subtree. It repeats the subtree's counts, so that a search among the children reads one array.
type child struct {
	tree *sequence
	counts
}

const maxWidth = 32

// owner is the right to change a sequence in place. A fold of many records has one until it is done, because the parts
// of the tree that it made are not shared yet.
type owner struct{ _ byte }

// counts is the number of nodes, and of those with an event.
type counts struct{ size, visible int }

func (c *counts) add(o counts) { c.size, c.visible = c.size+o.size, c.visible+o.visible }

// count computes the counts.
func (s *sequence) count() {
	s.counts = counts{size: len(s.nodes)}
	for i := range s.nodes {
		if s.nodes[i].event != nil {
			s.visible++
		}
	}
	for i := range s.kids {
		s.add(s.kids[i].counts)
	}
}

// width returns the number of nodes of a leaf, or of children.
func (s *sequence) width() int { return len(s.nodes) + len(s.kids) }

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

// splice returns the sequence with the nodes from lo up to hi replaced by copies of others. It changes parts of own in
// place where possible; own may be nil.
func (s *sequence) splice(own *owner, lo, hi int, others []node) *sequence {
	if lo == hi && len(others) == 0 {
		return s
	}
	if s == nil {
		s = &sequence{}
	}
	var buf [4]child
	trees := s.replace(own, lo, hi, others, buf[:0])
	for len(trees) > 1 {
		trees = pack(own, trees, false, nil)
	}
	if len(trees) == 0 {
		return nil
	}
	s = trees[0].tree
	for len(s.kids) == 1 {
		s = s.kids[0].tree
	}
	return s
}

// replace appends to out the trees of s's height that take its place when the nodes from lo up to hi are replaced by
// others. There are none if no node is left.
func (s *sequence) replace(own *owner, lo, hi int, others []node, out []child) []child {
	if s.kids == nil {
		n := len(s.nodes) - (hi - lo) + len(others)
		if s.isOwn(own, n) {
			s.nodes = slices.Replace(s.nodes, lo, hi, others...)
			return s.changed(out)
		}
		return pack(own, concat(s.nodes[:lo], others, s.nodes[hi:]), lo == len(s.nodes), out)
	}
	i, before := s.childAt(lo)
	j, until := i, before
	for ; j+1 < len(s.kids) && until+s.kids[j].size < hi; j++ {
		until += s.kids[j].size
	}
	var buf [4]child
	trees := s.kids[i].tree.replace(own, lo-before, min(hi-before, s.kids[i].size), others, buf[:0])
	if j > i { // the children between them go
		trees = s.kids[j].tree.replace(own, 0, hi-until, nil, trees)
	}
	isSmall := func(c child) bool { return c.tree.width() < maxWidth/4 }
	if lo < s.size && slices.ContainsFunc(trees, isSmall) { // small trees would pile up
		switch {
		case i > 0:
			i--
			trees = slices.Insert(trees, 0, s.kids[i])
		case j+1 < len(s.kids):
			j++
			trees = append(trees, s.kids[j])
		}
		trees = merge(own, trees)
	}
	if s.isOwn(own, len(s.kids)-(j+1-i)+len(trees)) {
		s.kids = slices.Replace(s.kids, i, j+1, trees...)
		return s.changed(out)
	}
	return pack(own, concat(s.kids[:i], trees, s.kids[j+1:]), lo == s.size, out)
}

// isOwn reports whether the tree can be changed in place to a width.
func (s *sequence) isOwn(own *owner, width int) bool {
	return own != nil && s.owner == own && 0 < width && width <= maxWidth
}

// changed appends the tree, which was changed in place.
func (s *sequence) changed(out []child) []child {
	s.count()
	return append(out, child{s, s.counts})
}

// concat is [slices.Concat], without room for more.
func concat[T any](a, b, c []T) []T {
	return append(append(append(make([]T, 0, len(a)+len(b)+len(c)), a...), b...), c...)
}

// pack appends trees of own which have the given nodes, or children. They have equal shares, or if the items grew at their
// end, all but the last are full: what events are appended to fills up.
func pack[T node | child](own *owner, items []T, atEnd bool, out []child) []child {
	size := maxWidth
	if trees := (len(items) + maxWidth - 1) / maxWidth; trees > 1 && !atEnd {
		size = (len(items) + trees - 1) / trees
	}
	for piece := range slices.Chunk(items, size) {
		s := &sequence{owner: own}
		switch piece := any(piece).(type) {
		case []node:
			s.nodes = piece
		case []child:
			s.kids = piece
		}
		out = s.changed(out)
	}
	return out
}

// merge returns trees that are not small, in place of adjacent ones of a height.
func merge(own *owner, trees []child) []child {
	var nodes []node
	var kids []child
	for _, c := range trees {
		nodes, kids = append(nodes, c.tree.nodes...), append(kids, c.tree.kids...)
	}
	return pack(own, kids, false, pack(own, nodes, false, nil))
}

// childAt returns the child with the node at a rank, or the last one, and the number of nodes before it.
func (s *sequence) childAt(rank int) (i, before int) {
	for i < len(s.kids)-1 && before+s.kids[i].size <= rank {
		before += s.kids[i].size
		i++
	}
	return i, before
}

// visibleAt returns the i-th visible node and its rank among all nodes.
func (s *sequence) visibleAt(i int) (n *node, rank int) {
	for s.kids != nil {
		k := 0
		for i >= s.kids[k].visible {
			i, rank = i-s.kids[k].visible, rank+s.kids[k].size
			k++
		}
		s = s.kids[k].tree
	}
	for j := range s.nodes {
		if s.nodes[j].event == nil {
			continue
		}
		if i == 0 {
			return &s.nodes[j], rank + j
		}
		i--
	}
	panic("fold: visible index out of range")
}

// walk calls visit with each node from lo up to hi, until it returns false, and returns the last result.
func (s *sequence) walk(lo, hi int, visit func(*node) bool) bool {
	if lo >= hi {
		return true
	}
	for i := lo; i < min(hi, len(s.nodes)); i++ {
		if !visit(&s.nodes[i]) {
			return false
		}
	}
	for i := range s.kids {
		k := &s.kids[i]
		if lo < k.size && !k.tree.walk(max(lo, 0), min(hi, k.size), visit) {
			return false
		}
		lo, hi = lo-k.size, hi-k.size
	}
	return true
}

// all yields the nodes in order.
func (s *sequence) all(yield func(*node) bool) { s.walk(0, s.len(), yield) }

// nodeAt returns the node at a rank.
func (s *sequence) nodeAt(rank int) *node {
	for s.kids != nil {
		i, before := s.childAt(rank)
		s, rank = s.kids[i].tree, rank-before
	}
	return &s.nodes[rank]
}

// visibleBefore returns the number of visible nodes before a rank.
func (s *sequence) visibleBefore(rank int) (n int) {
	if s == nil {
		return 0
	}
	for s.kids != nil {
		i, before := s.childAt(rank)
		for _, k := range s.kids[:i] {
			n += k.visible
		}
		s, rank = s.kids[i].tree, rank-before
	}
	for i := range s.nodes[:rank] {
		if s.nodes[i].event != nil {
			n++
		}
	}
	return n
}

// firstAtPos returns the rank of the first node with a pos from pos on, or the end.
func (s *sequence) firstAtPos(pos uint64) (rank int) {
	if s == nil {
		return 0
	}
	for s.kids != nil {
		i := sort.Search(len(s.kids)-1, func(i int) bool { return s.kids[i].tree.last().pos() >= pos })
		for _, k := range s.kids[:i] {
			rank += k.size
		}
		s = s.kids[i].tree
	}
	return rank + sort.Search(len(s.nodes), func(i int) bool { return s.nodes[i].pos() >= pos })
}

// last returns the last node.
func (s *sequence) last() *node {
	for s.kids != nil {
		s = s.kids[len(s.kids)-1].tree
	}
	return &s.nodes[len(s.nodes)-1]
}
