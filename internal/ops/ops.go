// Package ops has the operations on sessions that the command and the inspector share. Each operation is
// planned, previewed, applied and explained here, so that the command and the inspector behave alike.
//
// A preview writes nothing. If an operation gets the view of its preview, it does what the preview showed or
// fails with [store.ErrConflict].
package ops

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Change is an operation that logs patches: [Patches], [Undo] or [Restore].
type Change interface {
	// Preview returns the effect that the change would have on the given view.
	Preview(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Preview, error)
	// Apply logs the patches. It fails with a conflict if the log has a newer patch than the given view.
	Apply(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Committed, error)
}

// Patches logs the patches that Plan makes from a view.
type Patches struct {
	Plan func(on fold.View) ([]*patch.PatchEvent, error)
	// Options must not set On. Preview and Apply set On to the view.
	Options store.PatchOptions
}

// Preview implements [Change].
func (c Patches) Preview(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Preview, error) {
	patches, err := c.Plan(on)
	if err != nil {
		return store.Preview{}, err
	}
	c.Options.On = on
	preview, err := s.Preview(ctx, key, patches, c.Options)
	if err == nil {
		preview.Patches = patches // without the ids and times that the store assigns when it logs them
	}
	return preview, err
}

// Apply implements [Change].
func (c Patches) Apply(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Committed, error) {
	patches, err := c.Plan(on)
	if err != nil {
		return store.Committed{}, err
	}
	c.Options.On = on
	return s.ApplyPatch(ctx, key, patches, c.Options)
}

// Undo reverts a patch with its group, or rewinds to before an invocation.
type Undo struct {
	PatchID, InvocationID string // exactly one is set
	// Options must not set On and DryRun. Preview and Apply set them.
	Options store.UndoOptions
}

// Preview implements [Change].
func (c Undo) Preview(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Preview, error) {
	c.Options.DryRun = true
	done, err := c.Apply(ctx, s, key, on)
	preview := store.Preview{Difference: done.Before.Diff(done.View)}
	for _, r := range done.Records {
		preview.Patches = append(preview.Patches, r.Patch)
	}
	return preview, err
}

// Apply implements [Change].
func (c Undo) Apply(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Committed, error) {
	c.Options.On = on
	if c.InvocationID != "" {
		return s.Rewind(ctx, key, c.InvocationID, c.Options)
	}
	return s.Revert(ctx, key, c.PatchID, c.Options)
}

// DifferenceOf returns the difference that a preview shows. If a single patch adds events, the difference shows the
// events of the patch, without ids and times.
func DifferenceOf(preview store.Preview) present.Difference {
	if len(preview.Patches) == 1 && preview.Patches[0].Type() != patch.Revert {
		return present.PreviewOf(preview, preview.Patches[0])
	}
	return present.DifferenceOf(preview.Before, preview.After)
}

// Restore reverts the patch that added a summary. If a revert makes other summaries visible, it reverts their
// patches too, until all events that the summary covers are visible. The reverts are one group.
type Restore struct {
	PatchID string
	Author  string
	// Options must not set On. Preview and Apply set On to the view.
	Options store.PatchOptions
}

// Preview implements [Change].
func (c Restore) Preview(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Preview, error) {
	c.Options.On = on
	preview := store.Preview{}
	preview.After = on
	var reverts []*patch.PatchEvent
	group := rand.Text()
	for next := []string{c.PatchID}; len(next) > 0; next = next[1:] {
		ids, err := preview.After.RevertTargets(next[0])
		switch blocked := (*fold.BlockedError)(nil); {
		case len(reverts) > 0 && errors.As(err, &blocked) && blocked.AlreadyReverted:
			continue // an earlier revert also reverts this patch
		case err != nil:
			return store.Preview{}, err
		}
		for _, id := range ids {
			reverts = append(reverts, patch.NewRevert(id).WithAuthor(c.Author).WithGroup(group))
		}
		before := preview.After
		if preview, err = s.Preview(ctx, key, reverts, c.Options); err != nil {
			return store.Preview{}, err
		}
		for _, added := range before.Diff(preview.After).Added {
			if !preview.After.Entry(added.Index).Summary {
				continue
			}
			for r, err := range s.RawEvents(ctx, key, preview.After.Entry(added.Index).Seq) {
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
	if preview.Patches = reverts; len(reverts) == 1 {
		reverts[0] = reverts[0].WithGroup("")
	}
	return preview, nil
}

// Apply implements [Change].
func (c Restore) Apply(ctx context.Context, s *store.Store, key store.Key, on fold.View) (store.Committed, error) {
	preview, err := c.Preview(ctx, s, key, on)
	if err != nil {
		return store.Committed{}, err
	}
	c.Options.On = on
	return s.ApplyPatch(ctx, key, preview.Patches, c.Options)
}
