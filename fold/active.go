package fold

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// This file determines which patches are active. A revert makes its target inactive. The revert of this revert
// makes the target active again.

// inactive returns the inactive patches whose seq is at least the argument from. A patch is inactive if an active
// revert targets it. The patches in the argument also count as inactive too.
func (l *cut) inactive(from uint64, also ...*cut) map[*cut]bool {
	inactive := map[*cut]bool{}
	for _, c := range also {
		inactive[c] = true
	}
	// A revert is newer than its target. The loop runs from the newest patch to the oldest, and so visits all
	// reverts of a patch before the patch. In "2:splice, 3:revert 2, 4:revert 3", 4 is active, 3 is inactive,
	// and 2 is active.
	for c := l; c != nil && c.seq >= from; c = c.older {
		if c.isRevert && !inactive[c] {
			inactive[c.target] = true
		}
	}
	return inactive
}

// RevertTargets returns the ids of the patches to revert in order to undo the given patch, newest first. If the
// patch has a group, these are all patches of the group. Patches that are already reverted are left out. If the
// revert of a patch was itself reverted, the patch is active again, even if that revert belongs to the same
// group.
//
// If no applied patch has the id, the error matches [patch.ErrInvalid]. If a patch of the group has the same id
// as an earlier patch, a revert cannot name the later patch, and the error also matches ErrInvalid. If all
// patches are already reverted, the error is a *[BlockedError].
func (v View) RevertTargets(patchID string) ([]string, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	target := v.patches.find(patchID)
	if target == nil {
		return nil, patchNotFound(patchID)
	}
	// The members of a group are usually logged together, but another program may have logged them anywhere.
	// Reverts before the oldest member cannot target the group, so the search ends there.
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
	inactive := map[*cut]bool{}
	for c := v.patches; c != nil && c.seq >= oldest; c = c.older {
		switch {
		case inactive[c]:
		case isMember(c):
			// A revert may itself be a member. It is then reverted too, so its target becomes active. If the
			// target is a member, it is reverted next. For "2:splice, 3:revert 2" in one group, the result is
			// 3, 2.
			if found := v.patches.find(c.id); found != c {
				return nil, fmt.Errorf("%w: patch %d of group %q has the id %q of patch %d", patch.ErrInvalid, c.seq, c.group, c.id, found.seq)
			}
			ids = append(ids, c.id)
		case c.isRevert:
			inactive[c.target] = true
		}
	}
	if len(ids) == 0 {
		return nil, alreadyReverted(patchID, v.patches.newestRevert(target))
	}
	return ids, nil
}

// newestRevert returns the newest active revert of a patch, or nil.
func (l *cut) newestRevert(target *cut) *cut {
	inactive := l.inactive(target.seq)
	for c := l; c != nil && c.seq > target.seq; c = c.older {
		if c.isRevert && c.target == target && !inactive[c] {
			return c
		}
	}
	return nil
}

func patchNotFound(id string) error {
	problem := fmt.Sprintf("no applied patch has the id %q; events and receipts of erasures cannot be reverted", id)
	return &patch.FieldError{Field: "patchId", Problem: problem, Flaw: patch.PatchNotFound}
}

// isPinned reports whether the newest active pin or unpin of a node is a pin.
func (l *cut) isPinned(node nodeID, inactive map[*cut]bool) bool {
	for c := l; c != nil; c = c.older {
		if c.pin != nil && c.pin.node == node && !c.isRevert && !inactive[c] {
			return c.pin.pinned
		}
	}
	return false
}

// olderThan returns the list of the patches before the record with the given seq.
func (l *cut) olderThan(seq uint64) *cut {
	for l != nil && l.seq >= seq {
		l = l.older
	}
	return l
}

// root follows a chain of reverts to its end and returns the patch there, which is not a revert.
func (c *cut) root() *cut {
	for c.isRevert {
		c = c.target
	}
	return c
}

// blockerFor returns the patch to revert so that c no longer blocks the revert of target. This patch is c
// itself, unless c is a redo of a patch that is newer than target. In that case, it is the patch that c redoes.
func (c *cut) blockerFor(target *cut) *cut {
	if root := c.root(); c.isRedo() && root.seq > target.seq {
		return root
	}
	return c
}

// isRedo reports whether the patch makes its root active again: the chain of reverts to the root has even length.
func (c *cut) isRedo() bool {
	reverts := 0
	for ; c.isRevert; c = c.target {
		reverts++
	}
	return reverts > 0 && reverts%2 == 0
}

// isReceipt reports whether the patch is the receipt of an erasure. A receipt does not change the visible log
// or the state, and it cannot be reverted. It counts as the newest patch. A patch whose author has not seen the
// erasure is therefore a conflict.
func (e edit) isReceipt() bool { return e.patch.Type() == patch.Erase }
