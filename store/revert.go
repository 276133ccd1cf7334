package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// UndoOptions are options of [Store.Revert] and [Store.Rewind]. The zero value applies the call to the newest log.
type UndoOptions struct {
	// On, if set, is the view that the caller saw. If a patch was logged after that view, the error matches
	// [ErrConflict]. Events that were appended after that view are no conflict; a rewind hides them too.
	On fold.View

	// Author is the author of the logged patches.
	Author string

	// AllowOrphans accepts a revert that separates a function call from its response. A rewind may do so without
	// this option.
	AllowOrphans bool

	// DryRun reports what the call would do, and writes nothing. The real call uses other ids and times. Do not
	// make patches from the returned view.
	DryRun bool
}

// Revert undoes a patch and all active patches of its group. It removes the events that they inserted and restores
// the events that they removed, with the state of these events. The patch need not be the newest one. Revert logs
// one revert for each patch, newest first, in one durable commit. If it fails, it logs none of them. The reverts
// form a group, so a Revert of any of them redoes all the patches.
//
// Revert reads the restored events without blocking other writers. It checks function calls and responses for all
// patches together.
//
// The error matches [ErrInvalid] if no applied patch has the id. It matches [ErrBlocked] if a later patch must be
// reverted first, or if all the patches are already reverted. The *[BlockedError] distinguishes these cases, and
// names the patch to revert. Other errors are those of [Store.ApplyPatch].
func (s *Store) Revert(ctx context.Context, key Key, patchID string, opts UndoOptions) (Committed, error) {
	p := undoPlan{s, opts, fold.CheckOptions{AllowOrphans: opts.AllowOrphans}, func(v fold.View) ([]*patch.PatchEvent, error) {
		ids, err := v.RevertTargets(patchID)
		patches := make([]*patch.PatchEvent, len(ids))
		for i, id := range ids {
			patches[i] = patch.NewRevert(id)
		}
		return patches, err
	}}
	return s.commitOrDraft(ctx, key, opts.On.Creation(), p, opts.DryRun)
}

// Rewind restores the session as it was before the first event of an invocation. [fold.View.Rewind] states the
// exact rules. Rewind logs its patches in one durable commit. If it fails, it logs none of them. The patches form a
// group, so a [Store.Revert] of any of them undoes the rewind. If no event of that invocation or later is visible
// or affects the state, Rewind logs nothing. Shared scopes do not change. A rewind may hide pinned events, and may
// leave function calls without a response.
//
// The error matches [ErrEventNotFound] if no event of the log belongs to the invocation. Other errors are those of
// [Store.ApplyPatch].
func (s *Store) Rewind(ctx context.Context, key Key, invocationID string, opts UndoOptions) (Committed, error) {
	creation, from, err := s.firstEventOf(ctx, key, opts.On.Creation(), invocationID)
	if err != nil {
		return Committed{}, err
	}
	p := undoPlan{s, opts, fold.CheckOptions{AllowOrphans: true, AllowPinned: true}, func(v fold.View) ([]*patch.PatchEvent, error) {
		return v.Rewind(from)
	}}
	return s.commitOrDraft(ctx, key, creation, p, opts.DryRun)
}

// firstEventOf returns the creation id of the session and the seq of the invocation's first event. If creation is not
// empty, the session must have that creation id.
func (s *Store) firstEventOf(ctx context.Context, key Key, creation, invocationID string) (_ string, seq uint64, err error) {
	if invocationID == "" {
		return "", 0, fmt.Errorf("%w: the id of the invocation is empty", ErrInvalid)
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

// undoPlan is the plan to log patches that are made from the newest view.
type undoPlan struct {
	store   *Store
	opts    UndoOptions
	check   fold.CheckOptions
	patches func(fold.View) ([]*patch.PatchEvent, error)
}

func (p undoPlan) Offered() []patch.Record { return nil }

func (p undoPlan) Draft(d *write.Draft) error {
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
