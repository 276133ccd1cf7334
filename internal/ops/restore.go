package ops

import (
	"context"
	"crypto/rand"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Restore takes back the patch that put in a summary, and the patches that put in the summaries which that brings
// back, until all events that the summary stands for are visible. The reverts are one group.
type Restore struct {
	PatchID string
	Author  string
	// Options without On.
	Options store.PatchOptions
}

// Preview implements [Change].
func (c Restore) Preview(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Preview, error) {
	c.Options.On = on
	would := store.Preview{}
	would.After = on
	var reverts []*patch.PatchEvent
	for next := []string{c.PatchID}; len(next) > 0; next = next[1:] {
		ids, err := would.After.Standing(next[0])
		switch {
		case err != nil && len(reverts) > 0:
			continue // it went with another one
		case err != nil:
			return store.Preview{}, err
		}
		for _, id := range ids {
			reverts = append(reverts, patch.NewRevert(id).WithAuthor(c.Author))
		}
		before := would.After
		if would, err = s.Preview(ctx, key, c.Options, reverts...); err != nil {
			return store.Preview{}, err
		}
		for _, back := range before.Diff(would.After).Added {
			if !would.After.Entry(back.Index).Summary {
				continue
			}
			for r, err := range s.RawEvents(ctx, key, would.After.Entry(back.Index).Seq) {
				if err != nil {
					return store.Preview{}, err
				}
				if r.Patch != nil {
					next = append(next, r.ID())
				}
				break
			}
		}
	}
	would.Patches = reverts
	return would, nil
}

// Apply implements [Change].
func (c Restore) Apply(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Committed, error) {
	would, err := c.Preview(ctx, s, key, on)
	if err != nil {
		return store.Committed{}, err
	}
	if group := rand.Text(); len(would.Patches) > 1 {
		for n, p := range would.Patches {
			would.Patches[n] = p.WithGroup(group)
		}
	}
	c.Options.On = on
	return s.ApplyPatch(ctx, key, c.Options, would.Patches...)
}
