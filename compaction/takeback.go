package compaction

import (
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// TakeBack returns the reverts that take back what one pass of compaction wrote: that of
// the patch with the given id, and before it those of the patches that belong to the same
// window ([Window.Also]) and stand, the newest first. Of any other patch it is that
// patch's revert alone. They are to be applied in one go, in their order. records is the
// session's raw log, such as Store.RawEvents yields; its error is the result's. The error
// matches [patch.ErrInvalid] if it is nil.
func TakeBack(records iter.Seq2[patch.Record, error], patchID string) ([]*patch.PatchEvent, error) {
	if records == nil {
		return nil, fmt.Errorf("%w: the records are nil", patch.ErrInvalid)
	}
	var parts []string
	for r, err := range records {
		switch {
		case err != nil:
			return nil, err
		case r.Patch == nil:
		case r.Patch.Type() == patch.Revert:
			parts = slices.DeleteFunc(parts, func(id string) bool { return id == r.Patch.PatchID() })
		case partOf(r.Patch) == patchID:
			parts = append(parts, r.ID())
		}
	}
	var reverts []*patch.PatchEvent
	for _, id := range slices.Backward(parts) {
		reverts = append(reverts, patch.NewRevert(id))
	}
	return append(reverts, patch.NewRevert(patchID)), nil
}

// partOf returns the id of the patch whose window a patch belongs to, or "".
func partOf(p *patch.PatchEvent) string {
	about, _ := p.CustomMetadata()[lineageKey].(map[string]any)
	id, _ := about["partOf"].(string)
	return id
}
