package fold

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/patch"
)

// node is an element of the sequence: a visible event, a visible summary, or an invisible marker. A node is
// identified by the seq of the record that created it, and by its index among the nodes of this record.
type node struct {
	event   *patch.Event // nil for a marker
	seq     uint64
	index   int32
	summary bool // whether a summarise created the node
	cut     *cut // the patch that created the node; nil for a regular event
}

// isMarker reports whether the node is a marker. A patch that adds no event creates a marker.
func (n *node) isMarker() bool { return n.cut != nil && !n.cut.addsEvents }

// pos is the sort key of the sequence. Several nodes may have the same pos.
//
// The pos of a regular event is its seq, because events are only appended at the end. The nodes of a patch have
// the pos of the last node that the patch removed. If the patch removed no node, they have the pos of the node
// before them. The marker of a revert has the pos of the node before the marker.
//
// A restored node therefore fits in its old position. A node can be found by its pos.
func (n *node) pos() uint64 {
	if n.cut == nil {
		return n.seq
	}
	return n.cut.pos
}

// carriedDelta returns the delta that the node carries: the net delta of the run that it replaced, if the patch
// kept the state.
func (n *node) carriedDelta() delta {
	if n.cut == nil || n.index != 0 {
		return nil
	}
	return n.cut.carriedDelta
}

// sequence is a persistent list of nodes, which views share. It is a B-tree. A splice copies only the path to
// the changed nodes.
//
//	                [ 5 | 4 | 6 ]                  inner node: children, each with its number of nodes
//	               /      |      \
//	[a b c d e]   [f g h i]   [j k l m n o]       leaves: the nodes
//
// Replacing g by x and y copies the root and the second leaf. Both sequences share the other leaves. All leaves
// have the same depth. A nil sequence is empty.
type sequence struct {
	nodes []node  // nodes of a leaf; 1 to maxWidth
	kids  []child // children of an inner node; 1 to maxWidth
	counts
	owner *owner
	net   atomic.Pointer[delta]
	bytes atomic.Int64 // approximate memory of the nodes; 0 until computed
}

// child is a subtree. It contains a copy of the subtree's counts, so that a search among the children reads
// only one array.
type child struct {
	tree *sequence
	counts
}

const maxWidth = 32

// owner identifies the parts of a tree that a fold may change in place, because it created them and does not
// share them yet. A fold of many records has an owner.
type owner struct{ _ byte }

// counts is the number of nodes and the number of visible nodes. 32 bits keep the arrays of children small.
type counts struct{ size, visible int32 }

func (c *counts) add(o counts) { c.size, c.visible = c.size+o.size, c.visible+o.visible }

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

// splice returns the sequence in which copies of the given nodes replace the nodes in [lo, hi). If possible, it
// changes parts that belong to own in place. The argument own may be nil.
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
	w := splicer{own: own, trees: make([]child, 0, 4)}
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

// replaceInPlace splices within one leaf that belongs to own, and returns the change of the counts. If there is
// no such leaf, or if the leaf would become too small or too large, ok is false.
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

type splicer struct {
	own   *owner
	trees []child // stack of new trees
}

// replace splices the subtree s and pushes the resulting trees. They have the same height as s. If no node
// remains, replace pushes no tree.
func (w *splicer) replace(s *sequence, lo, hi int, others []node) {
	if s.kids == nil {
		// An append to a leaf of own fills the leaf. Other nodes go to new leaves.
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
	if j > i { // the children between i and j are dropped
		w.replace(s.kids[j].tree, 0, hi-until, nil)
	}
	isSmall := func(c child) bool { return len(c.tree.nodes)+len(c.tree.kids) < maxWidth/4 }
	if lo < s.len() && slices.ContainsFunc(w.trees[mark:], isSmall) { // merge small trees, which would otherwise accumulate
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
func (w *splicer) owns(s *sequence) bool { return w.own != nil && s.owner == w.own }

// push pushes a tree that is new or was changed in place.
func (w *splicer) push(s *sequence) {
	s.count()
	w.trees = append(w.trees, child{s, s.counts})
}

// concat is [slices.Concat] without spare capacity.
func concat[T any](a, b, c []T) []T {
	return append(append(append(make([]T, 0, len(a)+len(b)+len(c)), a...), b...), c...)
}

// pack distributes the items, which are nodes or children, over new trees and pushes the trees. They have about
// the same size. If atEnd is true, items were appended, and more are likely to follow. In that case, all trees
// except the last are full.
func pack[T any](w *splicer, items []T, atEnd bool, newTree func([]T) *sequence) {
	size := maxWidth
	if trees := (len(items) + maxWidth - 1) / maxWidth; trees > 1 && !atEnd {
		size = (len(items) + trees - 1) / trees
	}
	for len(items) > 0 {
		n := min(size, len(items))
		part := items[:n:n]
		if w.own != nil {
			part = append(make([]T, 0, maxWidth), part...) // spare capacity for later changes
		}
		s := newTree(part)
		s.owner, items = w.own, items[n:]
		w.push(s)
	}
}

func newLeaf(nodes []node) *sequence  { return &sequence{nodes: nodes} }
func newInner(kids []child) *sequence { return &sequence{kids: kids} }

// merge combines the trees from mark on and distributes their items over trees that are not small. The trees
// are adjacent and have the same height.
func (w *splicer) merge(mark int) {
	var nodes []node
	var kids []child
	for _, c := range w.trees[mark:] {
		nodes, kids = append(nodes, c.tree.nodes...), append(kids, c.tree.kids...)
	}
	w.trees = w.trees[:mark]
	pack(w, nodes, false, newLeaf)
	pack(w, kids, false, newInner)
}

// childAt returns the index of the child that contains the node at a rank, and the number of nodes before this
// child. If the rank is beyond the end, it returns the last child.
func (s *sequence) childAt(rank int) (i, before int) {
	for i < len(s.kids)-1 && before+int(s.kids[i].size) <= rank {
		before += int(s.kids[i].size)
		i++
	}
	return i, before
}

// visibleAt returns the visible node with index i, and its rank among all nodes.
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

// walk calls visit with each node in [lo, hi) until visit returns false. It returns the last result of visit.
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

func (s *sequence) all(yield func(*node) bool) { s.walk(0, s.len(), yield) }

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

// firstAtPos returns the rank of the first node whose pos is at least the given pos. If there is no such node,
// it returns the length.
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

func (s *sequence) last() *node {
	for s.kids != nil {
		s = s.kids[len(s.kids)-1].tree
	}
	return &s.nodes[len(s.nodes)-1]
}
