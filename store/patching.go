package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// PatchOptions names the view from which the patches were made, and disables some of the rules for patches.
type PatchOptions = fold.PatchOptions

// ApplyPatch logs patches in one durable commit. If it fails, it logs none of them. Each patch is checked, as
// [fold.View.Preview] states, on the view after the patches before it. Only the first patch's base is checked,
// because the caller has seen the call's other patches. Adjacent patches of one group are checked for orphaned
// calls as one patch. The log must not already contain the group.
//
// ApplyPatch handles ids, times, "temp:" keys, shared scopes and retries as [Store.AppendEvents] does. It handles
// the events inside a patch in the same way.
//
// If the store refuses a patch, nothing was written. The error then matches [ErrDuplicateID], [ErrConflict],
// [ErrInvalid], [ErrOutOfRange], [ErrEventNotFound], [ErrPinned], [ErrOrphanedCall], [ErrBlocked],
// [ErrUnknownPatch] or [ErrTooLarge]. If the session does not exist, the error matches [ErrNotFound]. If the error
// matches [ErrOutcomeUnknown], the patches may or may not have been written.
func (s *Store) ApplyPatch(ctx context.Context, key Key, patches []*patch.PatchEvent, opts PatchOptions) (Committed, error) {
	p, err := newPatching(opts, patches)
	if err != nil {
		return Committed{}, err
	}
	return s.commit(ctx, key, opts.On.Creation(), p)
}

// Preview is the result of [Store.Preview]. Difference is the change of the view. Patches are the patches that
// ApplyPatch would log, without patches that are already in the log. Ids and times that the caller did not set
// differ in the real call. Do not make patches from Difference.After.
type Preview struct {
	fold.Difference
	Patches []*patch.PatchEvent
}

// Preview returns what [Store.ApplyPatch] would do, and writes nothing. Its options, checks and errors are those of
// ApplyPatch. Patches that are already in the log have no effect.
func (s *Store) Preview(ctx context.Context, key Key, patches []*patch.PatchEvent, opts PatchOptions) (Preview, error) {
	p, err := newPatching(opts, patches)
	if err != nil {
		return Preview{}, err
	}
	done, err := s.draft(ctx, key, opts.On.Creation(), p)
	if err != nil {
		return Preview{}, err
	}
	out := Preview{Difference: done.Before.Diff(done.View)}
	for _, r := range done.Records {
		if r.Seq > done.Before.Seq() {
			out.Patches = append(out.Patches, r.Patch)
		}
	}
	return out, nil
}

// patchPlan is the plan to log patches.
type patchPlan struct {
	opts    PatchOptions
	patches []patch.Record
}

func newPatching(opts PatchOptions, patches []*patch.PatchEvent) (patchPlan, error) {
	p := patchPlan{opts: opts, patches: make([]patch.Record, len(patches))}
	for i, one := range patches {
		switch {
		case one == nil:
			return patchPlan{}, fmt.Errorf("%w: patch %d of the call is nil", ErrInvalid, i)
		case one.Type() == patch.Erase:
			return patchPlan{}, &patch.FieldError{Field: "patchType", Problem: "only an erase logs receipts; use Store.Erase", Flaw: patch.ForeignField}
		}
		p.patches[i] = patch.Record{Patch: one}
	}
	return p, nil
}

func (p patchPlan) Offered() []patch.Record { return p.patches }

func (p patchPlan) Draft(d *write.Draft) error {
	if err := d.Match(); err != nil {
		return err
	}
	return d.Patches(p.opts)
}

// View returns the session's newest view, without shared state. Its errors are those of [Store.Get].
func (s *Store) View(ctx context.Context, key Key) (fold.View, error) {
	session, err := s.Get(ctx, key)
	return session.View, err
}
