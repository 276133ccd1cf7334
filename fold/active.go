package fold

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// This file decides which patches are active: a revert deactivates its target, and the revert of that revert activates
// it again.

// undone returns the inactive patches from a seq on: the targets of active reverts. The patches in also count as
// inactive.
func (l *cut) undone(from uint64, also ...*cut) map[*cut]bool {
	undone := map[*cut]bool{}
	for _, c := range also {
		undone[c] = true
	}
	// A revert is newer than its target, so going newest first judges each patch after all its reverts: in "2:splice,
	// 3:revert 2, 4:revert 3", 4 is active, so 3 is not, and 2 is.
	for c := l; c != nil && c.seq >= from; c = c.older {
		if c.isRevert && !undone[c] {
			undone[c.target] = true
		}
	}
	return undone
}

// RevertTargets returns the ids of the patches to revert in order to take back the given one, newest
// first: the patch itself, or the patches of its group, without those already reverted. A patch whose
// revert was reverted is active again, even if that revert belongs to the same group.
//
// The error matches [patch.ErrInvalid] if no applied patch has the id, or if a patch of the group
// shares its id with an earlier patch, so that a revert cannot name it. It is a *[BlockedError] if
// all of them are already reverted.
func (v View) RevertTargets(patchID string) ([]string, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	target := v.patches.find(patchID)
	if target == nil {
		return nil, patchNotFound(patchID)
	}
	// Members are usually logged together, but another writer may have logged them anywhere. So find the oldest member,
	// and skip the reverts before it: they cannot target the group.
	isMember := func(c *cut) bool { return c == target || target.group != "" && c.group == target.group }
	oldest := target.seq
	if target.group != "" {
		for l := v.patches; l != nil; l = l.older {
			if isMember(l) {
				oldest = l.seq
			}
		}
	}
	var ids []string
	undone := map[*cut]bool{}
	for c := v.patches; c != nil && c.seq >= oldest; c = c.older {
		switch {
		case undone[c]:
		case isMember(c):
			// A revert that is a member does not deactivate its target: it is reverted too, which activates the target.
			// If the target is a member, it is reverted next: for "2:splice, 3:revert 2" in one group, 3 and then 2.
			if named := v.patches.find(c.id); named != c {
				return nil, fmt.Errorf("%w: patch %d of group %q has the id %q of patch %d", patch.ErrInvalid, c.seq, c.group, c.id, named.seq)
			}
			ids = append(ids, c.id)
		case c.isRevert:
			undone[c.target] = true
		}
	}
	if len(ids) == 0 {
		return nil, alreadyReverted(patchID, v.patches.newestRevert(target))
	}
	return ids, nil
}

// newestRevert returns the newest active revert of a patch, or nil.
func (l *cut) newestRevert(target *cut) *cut {
	undone := l.undone(target.seq)
	for c := l; c != nil && c.seq > target.seq; c = c.older {
		if c.isRevert && c.target == target && !undone[c] {
			return c
		}
	}
	return nil
}

func patchNotFound(id string) error {
	problem := fmt.Sprintf("give the id of an applied patch instead of %q; events and receipts of erasures cannot be reverted", id)
	return &patch.FieldError{Field: "patchId", Problem: problem, Flaw: patch.PatchNotFound}
}

// pinsNode reports whether the newest active pin or unpin of a node is a pin.
func (l *cut) pinsNode(node nodeID, undone map[*cut]bool) bool {
	for c := l; c != nil; c = c.older {
		if c.pin != nil && c.pin.node == node && !c.isRevert && !undone[c] {
			return c.pin.pinned
		}
	}
	return false
}

// olderThan returns the patches before the record with a seq.
func (l *cut) olderThan(seq uint64) *cut {
	for l != nil && l.seq >= seq {
		l = l.older
	}
	return l
}

// root follows a chain of reverts from the patch to the patch at its end, which is not a revert.
func (c *cut) root() *cut {
	for c.isRevert {
		c = c.target
	}
	return c
}

// blockerFor returns the patch to revert so that c does not block the revert of target: c itself, or if c is a
// redo, the patch that it activates. If that patch is older than target, only the redo blocks it.
func (c *cut) blockerFor(target *cut) *cut {
	if root := c.root(); c.isRedo() && root.seq > target.seq {
		return root
	}
	return c
}

// isRedo reports whether the patch is the revert of a revert.
func (c *cut) isRedo() bool {
	reverts := 0
	for ; c.isRevert; c = c.target {
		reverts++
	}
	return reverts > 0 && reverts%2 == 0
}

// isReceipt reports whether the patch is the receipt of an erasure. A receipt changes nothing and cannot be
// reverted. It counts as the newest patch, so patches made before the erasure are conflicts.
func (e edit) isReceipt() bool { return e.patch.Type() == patch.Erase }
