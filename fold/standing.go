package fold

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// undone returns the patches from seq from on that reverts have taken back, by reverts
// that are not taken back themselves.
func (l *patchList) undone(from uint64) map[*cut]bool {
	undone := map[*cut]bool{}
	for at := l; at != nil && at.cut.seq >= from; at = at.older {
		if c := at.cut; c.revert && !undone[c] {
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
		return nil, v.patchNotFound(patchID)
	}
	isMember := func(c *cut) bool { return c == target || target.group != "" && c.group == target.group }
	oldest := target.seq
	if target.group != "" {
		for l := v.patches; l != nil; l = l.older {
			if isMember(l.cut) {
				oldest = l.cut.seq
			}
		}
	}
	var ids []string
	undone := v.patches.undone(oldest)
	for l := v.patches; l != nil && l.cut.seq >= oldest; l = l.older {
		c := l.cut
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

func (v View) patchNotFound(id string) error {
	problem := "no patch %q has been applied"
	if v.receipts.has(id) {
		problem = "%q is the receipt of an erasure; what was erased cannot be brought back"
	}
	return &patch.Defect{Field: "patchId", Problem: fmt.Sprintf(problem, id), Flaw: patch.PatchNotFound}
}
