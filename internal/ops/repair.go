package ops

import (
	"context"
	"crypto/rand"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// CloseCalls returns the patches of [compaction.CloseCalls] for a view. It skips calls whose invocation is
// running, that is, leased by a process. The function newID may be nil.
func CloseCalls(ctx context.Context, s *store.Store, key store.Key, v fold.View, author string, newID func() string) ([]*patch.PatchEvent, error) {
	if newID == nil {
		newID = rand.Text
	}
	leased := map[string]bool{} // whether an invocation is leased
	var leaseErr error
	patches, err := compaction.CloseCalls(v, newID, func(c fold.Call) bool {
		invocation := v.At(c.Index).InvocationID()
		if _, checked := leased[invocation]; !checked {
			free, err := s.Lease(ctx, key, compaction.RunLease(invocation), -1)
			if leased[invocation] = !free; err != nil {
				leaseErr = err
			}
		}
		return leased[invocation]
	})
	if leaseErr != nil {
		return nil, leaseErr
	}
	for i, p := range patches {
		patches[i] = p.WithAuthor(author)
	}
	return patches, err
}
