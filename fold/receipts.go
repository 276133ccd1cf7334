package fold

import "github.com/patchlog-dev/patchlog/patch"

// receipt is a list of the receipts of erasures, by id, the newest first. A receipt puts in
// and takes out nothing, and no revert takes it back. That it counts as the newest patch
// keeps out what others have made of events before these were erased. nil is the empty list.
type receipt struct {
	id    string
	older *receipt
}

func (r *receipt) has(id string) bool {
	for ; r != nil; r = r.older {
		if r.id == id {
			return true
		}
	}
	return false
}

// isReceipt reports whether the patch is the receipt of an erasure.
func (e edit) isReceipt() bool { return e.patch.Type() == patch.Erase }
