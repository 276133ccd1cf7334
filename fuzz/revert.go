package fuzz

import (
	"cmp"
	"slices"
)

type applied struct {
	seq   uint64
	id    string
	group string
	step
	compactionCut bool // the result of isCompactionCut
}

// isCut reports whether the patch removed nodes and inserted only a marker.
func (a *applied) isCut() bool { return a.target == nil && a.pin == nil && a.in[0].event == nil }

func (a *applied) addsEvents() bool { return a.target == nil && a.pin == nil && a.in[0].event != nil }

// root follows a chain of reverts to its end, and returns the patch that is not a revert.
func (a *applied) root() *applied {
	for a.target != nil {
		a = a.target
	}
	return a
}

// isActive reports whether no active revert targets the patch.
func (r *Reference) isActive(a *applied) bool { return r.wasActiveBefore(a, r.nextSeq()) }

// wasActiveBefore reports whether the patch was active before record seq.
func (r *Reference) wasActiveBefore(a *applied, seq uint64) bool {
	return !slices.ContainsFunc(r.applied, func(b *applied) bool {
		return b.target == a && b.seq < seq && r.wasActiveBefore(b, seq)
	})
}

// nextSeq returns a seq that is greater than the seqs of all records and patches. A patch can have a higher seq than
// the last record, because the model of a rewind applies patches without records.
func (r *Reference) nextSeq() uint64 {
	seq := r.Seq()
	for _, a := range r.applied {
		seq = max(seq, a.seq)
	}
	return seq + 1
}

// findPatch returns the first patch with the id, or nil.
func (r *Reference) findPatch(id string) *applied {
	for _, a := range r.applied {
		if a.id == id {
			return a
		}
	}
	return nil
}

// PatchIDs returns the ids of the applied patches, in log order. The caller owns the slice.
func (r *Reference) PatchIDs() []string { return patchIDs(r.applied) }

func patchIDs(patches []*applied) (ids []string) {
	for _, a := range patches {
		ids = append(ids, a.id)
	}
	return ids
}

// RevertAll returns the ids of the patches that a store reverts when it is called to revert patchID. These are the
// active patches of the patch's group, newest first. If the patch has no group, it is only the patch itself.
//
// If a revert is blocked, ok is false, and blocked is the id of the newest patch that must be reverted first. If all
// patches are already reverted, ok is false, and blocked is the id of the newest active revert of one of the
// patches. If no applied patch has the id, ok is false, and blocked is "".
func (r *Reference) RevertAll(patchID string) (ids []string, blocked string, ok bool) {
	target := r.findPatch(patchID)
	if target == nil {
		return nil, "", false
	}
	now := r.clone()
	var reverts []*applied // active reverts of the group's patches
	for _, a := range slices.Backward(r.applied) {
		if a != target && (a.group == "" || a.group != target.group) {
			continue
		}
		// If a patch of the group is a revert, reverting it makes its target active again.
		if !now.isActive(a) {
			reverts = append(reverts, r.revertsOf(a)...)
			continue
		}
		s, reason, blocking := now.revertStep(a)
		if reason != "" {
			return nil, blocking.id, false
		}
		now.commit(s, applied{seq: now.nextSeq()})
		ids = append(ids, a.id)
	}
	if len(ids) == 0 {
		newest := slices.MaxFunc(reverts, func(a, b *applied) int { return cmp.Compare(a.seq, b.seq) })
		return nil, newest.id, false
	}
	return ids, "", true
}

// revertStep returns the effect of reverting the target. All nodes of in(target) must be present, with only markers
// of reverts between them. The nodes and markers become a new marker, followed by out(target). A pin or unpin only
// needs to be active. If the revert is impossible, revertStep returns the reason and the blocking patch. If the
// target is not active, the blocking patch is the newest active revert of the target.
func (r *Reference) revertStep(target *applied) (s step, reason string, blocking *applied) {
	if reverts := r.revertsOf(target); len(reverts) > 0 {
		return step{}, Blocked, reverts[len(reverts)-1]
	}
	if target.pin != nil {
		return step{after: r.nodes, target: target, pin: target.pin}, "", nil
	}
	from, to, missing, between := r.insertedRange(target)
	if len(missing)+len(between) > 0 {
		return step{}, Blocked, r.newestBlocker(r.blockersOf(target, missing, between))
	}
	in := slices.Concat([]*node{{isRevertMarker: true}}, target.out)
	return step{
		after: slices.Concat(r.nodes[:from], in, r.nodes[to+1:]), in: in, out: slices.Clone(r.nodes[from : to+1]),
		newCount: 1, target: target,
	}, "", nil
}

// insertedRange returns the range of the nodes that the patch inserted. The result missing has the inserted nodes
// that are not present. The result between has the other nodes in the range, except markers of reverts.
func (r *Reference) insertedRange(a *applied) (from, to int, missing, between []*node) {
	from, to = len(r.nodes), -1
	for _, n := range a.in {
		if i := slices.Index(r.nodes, n); i >= 0 {
			from, to = min(from, i), max(to, i)
		} else {
			missing = append(missing, n)
		}
	}
	for i := from; i <= to; i++ {
		if n := r.nodes[i]; !slices.Contains(a.in, n) && !n.isRevertMarker {
			between = append(between, n)
		}
	}
	return from, to, missing, between
}

// blockersOf returns the patches that block a revert of target. These patches removed a missing node, or inserted a
// node between the nodes of target.
func (r *Reference) blockersOf(target *applied, missing, between []*node) []*applied {
	var blockers []*applied
	for _, n := range between {
		if n.insertedBy != nil { // if nil, a logged event was restored in place of a missing node
			blockers = append(blockers, n.insertedBy)
		}
	}
	return append(blockers, r.removersOf(missing, target)...)
}

// removersOf returns the patches to revert so that the missing nodes of target are restored. It ignores all nodes
// after the first missing marker of a revert, because the revert that restores the marker may restore these nodes
// too.
func (r *Reference) removersOf(missing []*node, target *applied) (removers []*applied) {
	if i := slices.IndexFunc(missing, func(n *node) bool { return n.isRevertMarker }); i >= 0 {
		missing = missing[:i+1]
	}
	for _, n := range missing {
		removers = append(removers, r.removerOf(n).blockerFor(target))
	}
	return removers
}

// blockerFor returns the patch to revert so that patch a no longer blocks a revert of target. If a is a redo,
// blockerFor returns the patch that a restored, unless that patch is older than target. Otherwise, it returns a.
func (a *applied) blockerFor(target *applied) *applied {
	if a.isRedo() && a.root().seq > target.seq {
		return a.root()
	}
	return a
}

// isRedo reports whether the patch is a revert of a revert.
func (a *applied) isRedo() bool {
	return a.target != nil && a.target.target != nil && (a.target.target.target == nil || a.target.target.isRedo())
}

// removerOf returns the patch that last removed the node, or nil if the node is present.
func (r *Reference) removerOf(n *node) *applied {
	for _, a := range slices.Backward(r.applied) {
		switch {
		case slices.Contains(a.in, n):
			return nil
		case slices.Contains(a.out, n):
			return a
		}
	}
	return nil
}

// newestBlocker returns the newest patch of a set. The set has the patches in blockers, the patches that block a
// revert of these, and so on.
func (r *Reference) newestBlocker(blockers []*applied) *applied {
	newest := blockers[0]
	for i := 0; i < len(blockers); i++ {
		if blockers[i].seq > newest.seq {
			newest = blockers[i]
		}
		_, _, missing, _ := r.insertedRange(blockers[i])
		for _, a := range r.removersOf(missing, blockers[i]) {
			if !slices.Contains(blockers, a) {
				blockers = append(blockers, a)
			}
		}
	}
	return newest
}
