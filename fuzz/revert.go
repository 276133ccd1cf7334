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

// blocking returns the newest standing patch that took out, at any depth, one of the
// missing nodes, or that put in one of those between. A patch stands if a node that it
// put in does.
func (r *Reference) blocking(missing, between []*node) *applied {
	var holding []*applied // those that took out a missing node, or one that stood for it
	var newest *applied
	for _, a := range r.applied {
		holds := overlap(a.out, missing) ||
			slices.ContainsFunc(holding, func(earlier *applied) bool { return overlap(earlier.in, a.out) })
		if holds {
			holding = append(holding, a)
		}
		if (holds || overlap(a.in, between)) && overlap(a.in, r.nodes) {
			newest = a
		}
	}
	return newest
}

func overlap(a, b []*node) bool {
	return slices.ContainsFunc(a, func(n *node) bool { return slices.Contains(b, n) })
}
