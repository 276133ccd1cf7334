package fold

import "sort"

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
