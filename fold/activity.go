package fold

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// This file says which patches stand: reverts take patches back and make them stand again, and pins,
// rewinds and errors go by what stands.

// undone returns the patches from seq from on that reverts have taken back, by reverts
// that are not taken back themselves.
func (l *cut) undone(from uint64) map[*cut]bool {
	undone := map[*cut]bool{}
	for c := l; c != nil && c.seq >= from; c = c.older {
		if c.revert && !undone[c] {
			undone[c.target] = true
		}
	}
	return undone
}

// takeBack notes that a patch is taken back: what it took back itself stands again, and so
// on.
func takeBack(undone map[*cut]bool, c *cut) {
	undone[c] = true
	for ; c.revert; c = c.target {
		undone[c.target] = !undone[c]
	}
}

// Standing returns the ids of the patches that taking back the given one takes back,
// newest first: itself, or all patches of its group, without those that have been taken
// back already. A patch whose revert was reverted stands again, also if that revert is of the
// same group.
//
// The error matches [patch.ErrInvalid] if no applied patch has the id, or if a patch of
// the group cannot be named, since an earlier one has its id; it is a *[BlockedError] if
// none of them stands.
func (v View) Standing(patchID string) ([]string, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	target := v.patches.find(patchID)
	if target == nil {
		return nil, patchNotFound(patchID)
	}
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
	undone := v.patches.undone(oldest)
	for c := v.patches; c != nil && c.seq >= oldest; c = c.older {
		if undone[c] || !isMember(c) {
			continue
		}
		if named := v.patches.find(c.id); named != c {
			return nil, fmt.Errorf("%w: patch %d of group %q has the id %q of patch %d", patch.ErrInvalid, c.seq, c.group, c.id, named.seq)
		}
		ids = append(ids, c.id)
		takeBack(undone, c)
	}
	if len(ids) == 0 {
		return nil, v.blockedError(target)
	}
	return ids, nil
}

func patchNotFound(id string) error {
	problem := fmt.Sprintf("no patch %q has been applied that can be taken back; receipts of erasures cannot", id)
	return &patch.FieldError{Field: "patchId", Problem: problem, Flaw: patch.PatchNotFound}
}

// pins reports whether the newest pin or unpin of a node that is not undone is a pin.
func (l *cut) pins(node nodeID, undone map[*cut]bool) bool {
	c := l.decider(node, undone)
	return c != nil && c.pin.pinned
}

// decider returns the newest pin or unpin of a node that is not undone, or nil.
func (l *cut) decider(node nodeID, undone map[*cut]bool) *cut {
	for c := l; c != nil; c = c.older {
		if c.pin != nil && c.pin.node == node && !c.revert && !undone[c] {
			return c
		}
	}
	return nil
}

// before returns the patches before the record with a seq.
func (l *cut) before(seq uint64) *cut {
	for l != nil && l.seq >= seq {
		l = l.older
	}
	return l
}

// root returns the patch that a revert takes back, or makes to stand again, in the end. Of
// another patch it returns itself.
func (c *cut) root() *cut {
	for c.revert {
		c = c.target
	}
	return c
}

// inTheWayOf returns the patch to revert for c not to be in the way of reverting target: c, or
// if c is a redo, the patch that stands again by it. A patch older than target is not in its way;
// then it is the redo itself, which came later.
func (c *cut) inTheWayOf(target *cut) *cut {
	if root := c.root(); c.isRedo() && root.seq > target.seq {
		return root
	}
	return c
}

// isRedo reports whether the patch is a revert by which another patch stands again.
func (c *cut) isRedo() bool {
	reverts := 0
	for ; c.revert; c = c.target {
		reverts++
	}
	return reverts > 0 && reverts%2 == 0
}

// isReceipt reports whether the patch is the receipt of an erasure. It puts in and takes out nothing, and no
// revert takes it back. That it counts as the newest patch keeps out what others have made of events before
// these were erased.
func (e edit) isReceipt() bool { return e.patch.Type() == patch.Erase }
