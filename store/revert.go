package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// UndoOptions say what the author of a revert or a rewind has seen. The zero value means
// the log as it is at the time of the call.
type UndoOptions struct {
	// On is the view that the author looked at: the error matches [ErrConflict] if a
	// patch has been logged since. Events that were appended since are rewound too.
	On fold.View

	// Base, if not nil, says the same without a view: the newest patch seq that the author
	// had seen; 0 is none.
	Base *uint64

	// Author is the author of the patches.
	Author string

	// AllowOrphans accepts a revert that splits a function call from its response. A
	// rewind is never held to that.
	AllowOrphans bool
}

// Revert takes a patch back, and with it all patches of its group that stand: what they
// put in goes, and what they took out stands again, state included, however long ago
// that was. It logs a revert for each, newest first, in one durable commit, or none.
// These are a group in turn, so a Revert of one of them does all of it again.
//
// It reads what comes back, under ctx and without making other writers wait. Whether calls are
// split is judged for all of it at once.
//
// The error matches [ErrInvalid] if no applied patch has the id, [fold.ErrBlocked] if a later
// patch stands on one of them, naming the patch to revert first, or if all have been
// taken back; the others are those of [Store.ApplyPatch].
func (s *Store) Revert(ctx context.Context, key Key, opts UndoOptions, patchID string) (Committed, error) {
	return s.commit(ctx, key, opts.On.Creation(), reverting{opts, patchID})
}

// PreviewRevert returns what [Store.Revert] would do, and writes nothing.
func (s *Store) PreviewRevert(ctx context.Context, key Key, opts UndoOptions, patchID string) (Preview, error) {
	return s.previewOf(ctx, key, opts.On.Creation(), reverting{opts, patchID})
}

// reverting is the plan to take a patch back.
type reverting struct {
	opts    UndoOptions
	patchID string
}

func (p reverting) offers() []patch.Record { return nil }

func (p reverting) draft(d *draft) error {
	if err := p.opts.conflict(d.view); err != nil {
		return err
	}
	ids, err := d.view.Standing(p.patchID)
	if err != nil {
		return err
	}
	patches := make([]*patch.PatchEvent, len(ids))
	for i, id := range ids {
		patches[i] = patch.NewRevert(id)
	}
	return p.opts.draft(d, patches, fold.CheckOptions{AllowOrphans: p.opts.AllowOrphans})
}

// conflict reports whether a patch has been logged that the author has not seen.
func (o UndoOptions) conflict(v fold.View) error {
	base := v.PatchSeq()
	switch {
	case o.Base != nil && *o.Base > v.Seq():
		return &patch.FieldError{Field: "UndoOptions.Base", Problem: fmt.Sprintf("it is %d, but the log's last record is %d", *o.Base, v.Seq())}
	case o.Base != nil:
		base = *o.Base
	case o.On.Creation() != "":
		base = o.On.PatchSeq()
	}
	if base < v.PatchSeq() {
		return &fold.ConflictError{Base: base, Newest: v.PatchSeq()}
	}
	return nil
}

// draft adds patches that the plan has made from the draft's view.
func (o UndoOptions) draft(d *draft, patches []*patch.PatchEvent, check fold.CheckOptions) error {
	group := ""
	if len(patches) > 1 {
		group = d.store.opts.NewID()
	}
	base := d.view.PatchSeq()
	for i, p := range patches {
		if o.Author != "" {
			p = p.WithAuthor(o.Author)
		}
		patches[i] = p.WithBase(base).WithGroup(group)
		base = d.view.Seq() + 1 + uint64(i)
	}
	if len(patches) == 0 {
		d.present = true
		return nil
	}
	if err := d.propose(patches); err != nil {
		return err
	}
	return d.addPatches(d.missing, check)
}

// Rewind takes the session back to where it was before the first event of an invocation,
// as [fold.View.Rewind] plans it: all of its patches are logged in one durable commit, or
// none. They are a group, which [Store.Revert] takes back as one. None are needed, and
// none logged, if nothing is left of what came since. Shared scopes stay as they are.
// Calls without a response that this brings back are accepted, and pins do not hinder it.
//
// The error matches [fold.ErrEventNotFound] if no event of the log belongs to the invocation;
// the others are those of [Store.ApplyPatch].
func (s *Store) Rewind(ctx context.Context, key Key, opts UndoOptions, invocationID string) (Committed, error) {
	creation, p, err := s.rewinding(ctx, key, opts, invocationID)
	if err != nil {
		return Committed{}, err
	}
	return s.commit(ctx, key, creation, p)
}

// PreviewRewind returns what [Store.Rewind] would do, and writes nothing.
func (s *Store) PreviewRewind(ctx context.Context, key Key, opts UndoOptions, invocationID string) (Preview, error) {
	creation, p, err := s.rewinding(ctx, key, opts, invocationID)
	if err != nil {
		return Preview{}, err
	}
	return s.previewOf(ctx, key, creation, p)
}

// rewinding is the plan to rewind to before a record.
type rewinding struct {
	opts UndoOptions
	from uint64
}

func (p rewinding) offers() []patch.Record { return nil }

func (p rewinding) draft(d *draft) error {
	if err := p.opts.conflict(d.view); err != nil {
		return err
	}
	patches, err := d.view.Rewind(p.from)
	if err != nil {
		return err
	}
	return p.opts.draft(d, patches, fold.CheckOptions{AllowOrphans: true, AllowPinned: true})
}

// rewinding finds the first event of an invocation, and of which creation of the session
// it is.
func (s *Store) rewinding(ctx context.Context, key Key, opts UndoOptions, invocationID string) (creation string, p rewinding, err error) {
	if err := key.Validate(); err != nil {
		return "", p, err
	}
	if invocationID == "" {
		return "", p, fmt.Errorf("%w: the invocation to rewind to has no id", ErrInvalid)
	}
	head, err := s.headOnly(ctx, key)
	if err != nil {
		return "", p, err
	}
	if c := opts.On.Creation(); c != "" && c != head.Creation {
		return "", p, fmt.Errorf("session %s: %w: it was created again since", key, ErrNotFound)
	}
	for page, err := range s.pages(ctx, key, &head, 1, newest) {
		if err != nil {
			return "", p, err
		}
		for _, r := range page.records {
			if r.Event != nil && r.Event.InvocationID() == invocationID {
				return head.Creation, rewinding{opts, r.Seq}, nil
			}
		}
	}
	return "", p, fmt.Errorf("session %s: %w: no event belongs to invocation %q", key, fold.ErrEventNotFound, invocationID)
}
