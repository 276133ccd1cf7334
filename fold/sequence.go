package fold

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/patch"
)

// node is an element of the sequence: a visible event or summary, or a marker. Its identity is the record that created
// it and its index among the nodes that the record created.
type node struct {
	event   *patch.Event // nil in a marker
	seq     uint64
	index   int32
	summary bool // created by a summarise
	cut     *cut // of the patch that created it; nil for a regular event
}

// isMarker reports whether the node is a marker, the node of a patch that adds no event.
func (n *node) isMarker() bool { return n.cut != nil && !n.cut.addsEvents }

// pos is the sort key of the sequence; several nodes may share one. A regular event has its seq, since events are only
// added at the end. A patch's nodes have the pos of the last node that it removed, or of the node before them. A
// revert's marker has the pos of the node before it. So a restored node fits in its old position, and any node can be
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

// sequence is a persistent list of nodes that views share: a B-tree. A splice copies only the path to the nodes that it
// changes.
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
	bytes atomic.Int64 // approximate memory of the nodes; 0 if not computed
}

// child is a subtree. It repeats the subtree's counts, so that a search among the children reads only one array.
type child struct {
	tree *sequence
	counts
}

const maxWidth = 32

// owner identifies the parts of a tree that a fold has created and may change in place, because they are not shared
// yet. A fold of many records has one.
type owner struct{ _ byte }

// counts is the number of nodes, and of visible ones. 32 bits keep the arrays of children small.
type counts struct{ size, visible int32 }

func (c *counts) add(o counts) { c.size, c.visible = c.size+o.size, c.visible+o.visible }

// count computes the counts.
func (s *sequence) count() {
	s.counts = counts{size: int32(len(s.nodes))}
	for i := range s.nodes {
		if s.nodes[i].event != nil {
			s.visible++
		}
	}
	for i := range s.kids {
		s.add(s.kids[i].counts)
	}
}

func (s *sequence) len() int {
	if s == nil {
		return 0
	}
	return int(s.size)
}

func (s *sequence) visibleLen() int {
	if s == nil {
		return 0
	}
	return int(s.visible)
}

// splice returns the sequence with the nodes in [lo, hi) replaced by copies of others. It changes parts of own in place
// where possible; own may be nil.
func (s *sequence) splice(own *owner, lo, hi int, others []node) *sequence {
	if lo == hi && len(others) == 0 {
		return s
	}
	if s == nil {
		s = &sequence{}
	}
	if _, ok := s.replaceInPlace(own, lo, hi, others); ok {
		return s
	}
	w := splicing{own: own, trees: make([]child, 0, 4)}
	for w.replace(s, lo, hi, others); len(w.trees) > 1; {
		kids := slices.Clone(w.trees)
		w.trees = w.trees[:0]
		pack(&w, kids, false, newInner)
	}
	if len(w.trees) == 0 {
		return nil
	}
	s = w.trees[0].tree
	for len(s.kids) == 1 {
		s = s.kids[0].tree
	}
	return s
}

// replaceInPlace splices inside one leaf of own, and returns the change of the counts. ok is false if there is no such
// leaf, or if the leaf would get too small or too large.
func (s *sequence) replaceInPlace(own *owner, lo, hi int, others []node) (change counts, ok bool) {
	if own == nil || s.owner != own {
		return counts{}, false
	}
	if s.kids == nil {
		n := len(s.nodes) - (hi - lo) + len(others)
		if n > maxWidth || n < maxWidth/4 && lo < len(s.nodes) {
			return counts{}, false
		}
		before := s.counts
		s.nodes = slices.Replace(s.nodes, lo, hi, others...)
		s.count()
		return counts{s.size - before.size, s.visible - before.visible}, true
	}
	i, before := s.childAt(lo)
	if k := &s.kids[i]; hi <= before+int(k.size) {
		if change, ok = k.tree.replaceInPlace(own, lo-before, hi-before, others); ok {
			k.add(change)
			s.add(change)
		}
	}
	return change, ok
}

// splicing is a splice in progress.
type splicing struct {
	own   *owner
	trees []child // stack of new trees
}

// replace splices the subtree s and pushes the resulting trees, all of s's height; none if no node is left.
func (w *splicing) replace(s *sequence, lo, hi int, others []node) {
	if s.kids == nil {
		// An append to a leaf of own fills it up and puts the rest into new leaves.
		if n := min(maxWidth-lo, len(others)); lo == len(s.nodes) && w.owns(s) {
			s.nodes = append(s.nodes, others[:n]...)
			w.push(s)
			pack(w, others[n:], true, newLeaf)
			return
		}
		pack(w, concat(s.nodes[:lo], others, s.nodes[hi:]), lo == len(s.nodes), newLeaf)
		return
	}
	i, before := s.childAt(lo)
	j, until := i, before
	for ; j+1 < len(s.kids) && until+int(s.kids[j].size) < hi; j++ {
		until += int(s.kids[j].size)
	}
	mark := len(w.trees)
	w.replace(s.kids[i].tree, lo-before, min(hi-before, int(s.kids[i].size)), others)
	if j > i { // the children between are dropped
		w.replace(s.kids[j].tree, 0, hi-until, nil)
	}
	isSmall := func(c child) bool { return len(c.tree.nodes)+len(c.tree.kids) < maxWidth/4 }
	if lo < s.len() && slices.ContainsFunc(w.trees[mark:], isSmall) { // merge small trees, else they accumulate
		switch {
		case i > 0:
			i--
			w.trees = slices.Insert(w.trees, mark, s.kids[i])
		case j+1 < len(s.kids):
			j++
			w.trees = append(w.trees, s.kids[j])
		}
		w.merge(mark)
	}
	trees := w.trees[mark:]
	w.trees = w.trees[:mark]
	if n := len(s.kids) - (j + 1 - i) + len(trees); w.owns(s) && 0 < n && n <= maxWidth {
		s.kids = slices.Replace(s.kids, i, j+1, trees...)
		w.push(s)
		return
	}
	pack(w, concat(s.kids[:i], trees, s.kids[j+1:]), lo == s.len(), newInner)
}

// owns reports whether the tree can be changed in place.
func (w *splicing) owns(s *sequence) bool { return w.own != nil && s.owner == w.own }

// push pushes a tree that is new or was changed in place.
func (w *splicing) push(s *sequence) {
	s.count()
	w.trees = append(w.trees, child{s, s.counts})
}

// concat is [slices.Concat] without spare capacity.
func concat[T any](a, b, c []T) []T {
	return append(append(append(make([]T, 0, len(a)+len(b)+len(c)), a...), b...), c...)
}

// pack pushes trees of equal size with the given nodes or children. If the items grew at their end, all trees but the
// last are full, so that appending fills trees.
func pack[T any](w *splicing, items []T, atEnd bool, newTree func([]T) *sequence) {
	size := maxWidth
	if trees := (len(items) + maxWidth - 1) / maxWidth; trees > 1 && !atEnd {
		size = (len(items) + trees - 1) / trees
	}
	for len(items) > 0 {
		n := min(size, len(items))
		part := items[:n:n]
		if w.own != nil {
			part = append(make([]T, 0, maxWidth), part...) // room to grow
		}
		s := newTree(part)
		s.owner, items = w.own, items[n:]
		w.push(s)
	}
}

func newLeaf(nodes []node) *sequence  { return &sequence{nodes: nodes} }
func newInner(kids []child) *sequence { return &sequence{kids: kids} }

// merge replaces the trees from mark on, which are adjacent and of one height, by trees that are not small.
func (w *splicing) merge(mark int) {
	var nodes []node
	var kids []child
	for _, c := range w.trees[mark:] {
		nodes, kids = append(nodes, c.tree.nodes...), append(kids, c.tree.kids...)
	}
	w.trees = w.trees[:mark]
	pack(w, nodes, false, newLeaf)
	pack(w, kids, false, newInner)
}

// childAt returns the index of the child with the node at a rank, or of the last child, and the number of nodes before
// it.
func (s *sequence) childAt(rank int) (i, before int) {
	for i < len(s.kids)-1 && before+int(s.kids[i].size) <= rank {
		before += int(s.kids[i].size)
		i++
	}
	return i, before
}

// visibleAt returns the i-th visible node and its rank among all nodes.
func (s *sequence) visibleAt(i int) (n *node, rank int) {
	for s.kids != nil {
		k := 0
		for i >= int(s.kids[k].visible) {
			i, rank = i-int(s.kids[k].visible), rank+int(s.kids[k].size)
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

// walk calls visit with each node in [lo, hi) until it returns false, and returns the last result.
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
		size := int(s.kids[i].size)
		if lo < size && !s.kids[i].tree.walk(max(lo, 0), min(hi, size), visit) {
			return false
		}
		lo, hi = lo-size, hi-size
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
			n += int(k.visible)
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

// firstAtPos returns the rank of the first node with at least the given pos, or the length.
func (s *sequence) firstAtPos(pos uint64) (rank int) {
	if s == nil {
		return 0
	}
	for s.kids != nil {
		i := sort.Search(len(s.kids)-1, func(i int) bool { return s.kids[i].tree.last().pos() >= pos })
		for _, k := range s.kids[:i] {
			rank += int(k.size)
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
