package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Revert takes a patch back (semantics, section 9): what it put in goes, and what it took
// out stands again, state included, however long ago that was. A revert is a patch too,
// is logged by [Store.ApplyPatch] with a new id, and can be reverted.
//
// The error matches [ErrInvalid] if no applied patch has the id, and [ErrBlocked], naming
// the patch to revert first, if a later patch stands on the one to take back; the others
// are those of ApplyPatch.
func (s *Store) Revert(ctx context.Context, key Key, opts PatchOptions, patchID string) (Committed, error) {
	return s.ApplyPatch(ctx, key, opts, patch.NewRevert(patchID))
}

// RewindOptions say what the author of a rewind has seen. The zero value means the log as
// it is at the time of the call.
type RewindOptions struct {
	// On is the view that the author looked at: the error matches [ErrConflict] if a
	// patch has been logged since. Events that were appended since are rewound too.
	On fold.View

	// Author is the author of the patches.
	Author string
}

// Rewind takes the session back to where it was before the first event of an invocation,
// as [fold.View.Rewind] plans it: all of its patches are logged in one durable commit, or
// none. None are needed, and none logged, if nothing is left of what came since. Shared
// scopes stay as they are. Calls without a response that this brings back are accepted.
//
// The error matches [ErrEventNotFound] if no event of the log belongs to the invocation;
// the others are those of [Store.ApplyPatch].
func (s *Store) Rewind(ctx context.Context, key Key, opts RewindOptions, invocationID string) (Committed, error) {
	creation, from, err := s.firstOf(ctx, key, invocationID)
	if err != nil {
		return Committed{}, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	if err := h.lock(ctx); err != nil {
		return Committed{}, err
	}
	defer h.unlock()
	view, err := s.lockedView(ctx, h)
	if err != nil {
		return Committed{}, err
	}
	patches, err := s.planRewind(key, view, creation, from, opts)
	if err != nil {
		return Committed{}, err
	}
	w := write{store: s, handle: h}
	for _, p := range patches {
		w.records = append(w.records, patch.Record{Patch: p})
	}
	if err := w.begin(view, creation); err != nil {
		return Committed{}, err
	}
	if err := w.settle(ctx); err != nil {
		return Committed{}, err
	}
	for _, i := range w.missing {
		w.records[i].Patch = w.records[i].Patch.WithBase(w.view.PatchSeq())
		if err := w.view.Check(w.records[i].Patch, fold.CheckOptions{AllowOrphans: true}); err != nil {
			return Committed{}, fmt.Errorf("session %s: %w", key, err)
		}
		if err := w.add(i); err != nil {
			return Committed{}, err
		}
	}
	switch err := w.commit(ctx); {
	case errors.Is(err, ErrOutcomeUnknown):
		return Committed{Records: w.records}, err
	case err != nil:
		return Committed{}, err
	}
	return Committed{w.records, w.view}, nil
}

// RewindPreview is what a rewind would do.
type RewindPreview struct {
	Patches []*patch.PatchEvent // that it would log, without ids and times
	Before  fold.View
	View    fold.View // as it would stand after them; to look at, not to make patches from
}

// PreviewRewind returns what [Store.Rewind] would do, and writes nothing. Options and
// errors are as there.
func (s *Store) PreviewRewind(ctx context.Context, key Key, opts RewindOptions, invocationID string) (RewindPreview, error) {
	creation, from, err := s.firstOf(ctx, key, invocationID)
	if err != nil {
		return RewindPreview{}, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	view, err := s.view(ctx, h)
	if err != nil {
		return RewindPreview{}, err
	}
	patches, err := s.planRewind(key, view, creation, from, opts)
	if err != nil {
		return RewindPreview{}, err
	}
	preview := RewindPreview{Patches: patches, Before: view, View: view}
	for _, p := range patches {
		err := preview.View.Check(p, fold.CheckOptions{AllowOrphans: true})
		if err != nil {
			return RewindPreview{}, fmt.Errorf("session %s: %w", key, err)
		}
		if preview.View, err = preview.View.Apply(patch.Record{Seq: preview.View.Seq() + 1, Patch: p}); err != nil {
			return RewindPreview{}, fmt.Errorf("session %s: %w", key, err)
		}
	}
	return preview, nil
}

// firstOf returns the seq of the first event of an invocation, and of which creation of
// the session it is.
func (s *Store) firstOf(ctx context.Context, key Key, invocationID string) (creation string, seq uint64, err error) {
	if err := key.Validate(); err != nil {
		return "", 0, err
	}
	if invocationID == "" {
		return "", 0, fmt.Errorf("%w: the invocation to rewind to has no id", ErrInvalid)
	}
	head, err := s.backend.Head(ctx, key.name())
	if err != nil {
		return "", 0, fromBackend(key, err)
	}
	for page, err := range s.pages(ctx, key, head, 1, head.Last) {
		if err != nil {
			return "", 0, err
		}
		for _, r := range page.records {
			if r.Event != nil && r.Event.InvocationID() == invocationID {
				return head.Creation, r.Seq, nil
			}
		}
	}
	return "", 0, fmt.Errorf("session %s: %w: no event belongs to invocation %q", key, ErrEventNotFound, invocationID)
}

// planRewind returns the patches of a rewind of the view, which must be the newest.
func (s *Store) planRewind(key Key, view fold.View, creation string, from uint64, opts RewindOptions) ([]*patch.PatchEvent, error) {
	on := opts.On
	if view.Creation() != creation || on.Creation() != "" && on.Creation() != creation {
		return nil, fmt.Errorf("session %s: %w: it was created again since", key, ErrNotFound)
	}
	if on.Creation() != "" && on.PatchSeq() < view.PatchSeq() {
		return nil, fmt.Errorf("session %s: %w", key, &ConflictError{Base: on.PatchSeq(), Newest: view.PatchSeq()})
	}
	patches, err := view.Rewind(from)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", key, err)
	}
	for i, p := range patches {
		if opts.Author != "" {
			patches[i] = p.WithAuthor(opts.Author)
		}
	}
	return patches, nil
}
