package fuzz

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// applied is a patch that the fold applied: the nodes that it put in, and those that it
// took out (semantics, section 9).
type applied struct {
	seq     uint64
	id      string
	in, out []*node
	made    int  // so many of in, the first ones, are its own; the others a revert brought back
	cuts    bool // it took events out and made a marker of them
	drops   bool // what it took out no longer counts
}

// patchOf returns the patch with the id, the first if several have it, or nil.
func (r *Reference) patchOf(id string) *applied {
	for _, a := range r.applied {
		if a.id == id {
			return a
		}
	}
	return nil
}

// PatchIDs returns the ids of the patches that were applied, in log order. The slice is
// the caller's own.
func (r *Reference) PatchIDs() []string {
	var ids []string
	for _, a := range r.applied {
		ids = append(ids, a.id)
	}
	return ids
}

// reverted returns the nodes as a revert leaves them, or why it cannot be applied; if it
// is blocked, also by which patch.
func (r *Reference) reverted(p *patch.PatchEvent) (s step, reason string, blocking *applied) {
	target := r.patchOf(p.PatchID())
	if target == nil {
		return step{}, PatchNotFound, nil
	}
	from, to, missing, between := r.stretch(target)
	if len(missing)+len(between) > 0 {
		return step{}, Blocked, r.blocking(missing, between)
	}
	s.out = slices.Clone(r.nodes[from : to+1])
	s.in = slices.Concat([]*node{{ofRevert: true}}, target.out)
	s.after = slices.Concat(r.nodes[:from], s.in, r.nodes[to+1:])
	return s, "", nil
}

// stretch returns from where to where the nodes stand that the patch put in, which of
// them do not, and what else stands between but markers of reverts.
func (r *Reference) stretch(a *applied) (from, to int, missing, between []*node) {
	from, to = len(r.nodes), -1
	for _, n := range a.in {
		if i := slices.Index(r.nodes, n); i >= 0 {
			from, to = min(from, i), max(to, i)
		} else {
			missing = append(missing, n)
		}
	}
	for i := from; i <= to; i++ {
		if n := r.nodes[i]; !slices.Contains(a.in, n) && !n.ofRevert {
			between = append(between, n)
		}
	}
	return from, to, missing, between
}

// blocking returns the newest patch that must be reverted before: what holds a missing
// node, what made one of those between, and so on for the nodes that these put in and
// that do not stand.
func (r *Reference) blocking(missing, between []*node) *applied {
	holder := map[*node]*applied{}
	for _, a := range r.applied {
		for _, n := range a.out {
			holder[n] = a
		}
		for _, n := range a.in {
			delete(holder, n)
		}
	}
	for _, n := range r.nodes { // a rewind under way has brought back some
		delete(holder, n)
	}
	var must []*applied
	for _, n := range between {
		if by := r.maker(n); by != nil { // a raw event came back in place of a node that is missing
			must = append(must, by)
		}
	}
	for _, n := range missing {
		must = append(must, holder[n])
	}
	newest := must[0]
	for i := 0; i < len(must); i++ {
		if must[i].seq > newest.seq {
			newest = must[i]
		}
		for _, n := range must[i].in {
			if by := holder[n]; by != nil && !slices.Contains(must, by) {
				must = append(must, by)
			}
		}
	}
	return newest
}

func overlap(a, b []*node) bool {
	return slices.ContainsFunc(a, func(n *node) bool { return slices.Contains(b, n) })
}
