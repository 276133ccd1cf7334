package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// UndoOptions are options of [Store.Revert] and [Store.Rewind]. With the zero value they apply to the log as it is at
// the time of the call.
type UndoOptions struct {
	// On is the view that the author saw: the error matches [ErrConflict] if a patch was logged after that view. A
	// rewind also hides events appended after that view.
	On fold.View

	// Author is the author of the patches.
	Author string

	// AllowOrphans accepts a revert that splits a function call from its response. A rewind may always do so.
	AllowOrphans bool

	// DryRun reports what the call would do, and writes nothing. The real call logs its records with other ids and
	// times. Do not make patches from the returned view.
	DryRun bool
}

// Revert undoes a patch and all active patches of its group: what they inserted is removed, and what they removed is
// restored, with its state, whatever was logged since. It logs a revert for each patch, newest first, all in one
// durable commit or none. These reverts are a group too, so a Revert of one of them redoes all the patches.
//
// It reads the restored events without making other writers wait. Calls and responses are checked for all patches at once.
//
// The error matches [ErrInvalid] if no applied patch has the id. It matches [ErrBlocked] if a later patch depends on
// one of the patches (then it names the patch to revert first), or if all are undone already. Other errors are as for
// [Store.ApplyPatch].
func (s *Store) Revert(ctx context.Context, key Key, patchID string, opts UndoOptions) (Committed, error) {
	p := undoing{s, opts, fold.CheckOptions{AllowOrphans: opts.AllowOrphans}, func(v fold.View) ([]*patch.PatchEvent, error) {
		ids, err := v.RevertTargets(patchID)
		patches := make([]*patch.PatchEvent, len(ids))
		for i, id := range ids {
			patches[i] = patch.NewRevert(id)
		}
		return patches, err
	}}
	return s.commitOrDraft(ctx, key, opts.On.Creation(), p, opts.DryRun)
}

// Rewind restores the session as it was before the first event of an invocation, as [fold.View.Rewind] plans it. All
// patches are logged in one durable commit, or none. They are a group: [Store.Revert] of one of them undoes all.
// Nothing is logged if no event of that invocation or later is visible. Shared scopes stay as they are. A rewind may
// hide pinned events, and may leave calls without a response.
//
// The error matches [ErrEventNotFound] if no event of the log belongs to the invocation. Other errors are as for
// [Store.ApplyPatch].
func (s *Store) Rewind(ctx context.Context, key Key, invocationID string, opts UndoOptions) (Committed, error) {
	creation, from, err := s.firstOf(ctx, key, opts.On.Creation(), invocationID)
	if err != nil {
		return Committed{}, err
	}
	p := undoing{s, opts, fold.CheckOptions{AllowOrphans: true, AllowPinned: true}, func(v fold.View) ([]*patch.PatchEvent, error) {
		return v.Rewind(from)
	}}
	return s.commitOrDraft(ctx, key, creation, p, opts.DryRun)
}

// firstOf finds the first event of an invocation, and the creation id of the session that has it. If creation is not
// empty, the session must have that id.
func (s *Store) firstOf(ctx context.Context, key Key, creation, invocationID string) (_ string, seq uint64, err error) {
	if invocationID == "" {
		return "", 0, fmt.Errorf("%w: the invocation to rewind to has no id", ErrInvalid)
	}
	head, err := s.head(ctx, key)
	if err == nil && creation != "" && creation != head.Creation {
		err = errCreatedAgain(key)
	}
	if err != nil {
		return "", 0, err
	}
	seqs, err := s.backend.Lookup(ctx, key.name(), head.Creation, []string{write.InvocationIndex(invocationID)})
	switch {
	case err != nil:
		return "", 0, fromBackend(key, err)
	case seqs[0] == 0:
		return "", 0, fmt.Errorf("session %s: %w: no event belongs to invocation %q", key, fold.ErrEventNotFound, invocationID)
	}
	return head.Creation, seqs[0], nil
}

// undoing is the plan to log patches made from the newest view.
type undoing struct {
	store   *Store
	opts    UndoOptions
	check   fold.CheckOptions
	patches func(fold.View) ([]*patch.PatchEvent, error)
}

func (p undoing) Offered() []patch.Record { return nil }

func (p undoing) Draft(d *write.Draft) error {
	if on := p.opts.On; on.Creation() != "" && on.PatchSeq() < d.View.PatchSeq() {
		return &fold.ConflictError{Base: on.PatchSeq(), Newest: d.View.PatchSeq()}
	}
	patches, err := p.patches(d.View)
	if err == nil && len(patches) > 0 {
		d.Records, err = d.Propose(p.check, fold.Grouped(d.View, p.opts.Author, p.store.opts.NewID, patches)...)
	}
	d.Logged = len(patches) == 0
	return err
}
