package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// PatchOptions say which view the author of a patch has seen, and which rules the patch may break.
type PatchOptions = fold.PatchOptions

// ApplyPatch logs patches, all of them in one durable commit or none. Each patch is checked by [fold.View.Preview] on
// the log that the patches before it leave. Only the first patch's base is checked, since the author knows the call's
// own patches. Patches of one group are checked as one patch, and the log must not contain that group yet.
//
// Ids, times, temp: keys, shared scopes and retries work as in [Store.AppendEvents], also for events inside a patch. A
// refusal matches [ErrDuplicateID], [ErrConflict], [ErrInvalid], [ErrOutOfRange], [ErrEventNotFound], [ErrPinned],
// [ErrOrphanedCall], [ErrBlocked], [ErrUnknownPatch] or [ErrTooLarge], and nothing was written.
func (s *Store) ApplyPatch(ctx context.Context, key Key, patches []*patch.PatchEvent, opts PatchOptions) (Committed, error) {
	p, err := newPatching(opts, patches)
	if err != nil {
		return Committed{}, err
	}
	return s.commit(ctx, key, opts.On.Creation(), p)
}

// Preview is the result of [Store.Preview]: how a write would change the view, and the patches that it would log. Ids
// and times that the caller did not set will differ in the real write. Do not make patches from the Difference's After.
type Preview struct {
	fold.Difference
	Patches []*patch.PatchEvent
}

// Preview returns what [Store.ApplyPatch] would do, and writes nothing. Options, checks and errors are the same.
// Patches that are logged already have no effect.
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

// patching is the plan to log patches.
type patching struct {
	opts    PatchOptions
	patches []patch.Record
}

func newPatching(opts PatchOptions, patches []*patch.PatchEvent) (patching, error) {
	p := patching{opts: opts, patches: make([]patch.Record, len(patches))}
	for i, one := range patches {
		switch {
		case one == nil:
			return patching{}, fmt.Errorf("%w: patch %d of the call is nil", ErrInvalid, i)
		case one.Type() == patch.Erase:
			return patching{}, &patch.FieldError{Field: "patchType", Problem: "a receipt is logged by the erasing that it is of: use Store.Erase", Flaw: patch.ForeignField}
		}
		p.patches[i] = patch.Record{Patch: one}
	}
	return p, nil
}

func (p patching) Offered() []patch.Record { return p.patches }

func (p patching) Draft(d *write.Draft) error {
	if err := d.Match(); err != nil {
		return err
	}
	return d.Patches(p.opts)
}

// View returns the session's newest view: what [Store.Get] finds, without the state that
// sessions share. It fails with [ErrNotFound] if there is no such session.
func (s *Store) View(ctx context.Context, key Key) (fold.View, error) {
	session, err := s.Get(ctx, key)
	return session.View, err
}
