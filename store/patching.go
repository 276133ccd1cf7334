package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// PatchOptions say what the author of a patch has seen, and which rules it is not held to.
type PatchOptions = fold.PatchOptions

// ApplyPatch logs patches, all of them in one durable commit or none. Each is judged by
// [fold.View.Preview] on the log as the ones before leave it; of the bases only the
// first patch's is checked, since the call's own patches count as seen. Patches of one
// group are judged as one, and the log must not hold that group yet.
//
// Ids, times, temp: keys, shared scopes and retries are as for [Store.AppendEvents],
// for the events inside a patch too. A refusal matches [ErrDuplicateID], [ErrConflict],
// [ErrInvalid], [ErrOutOfRange], [ErrEventNotFound], [ErrPinned], [ErrOrphanedCall],
// [ErrBlocked], [ErrUnknownPatch] or [ErrTooLarge], and nothing was written.
func (s *Store) ApplyPatch(ctx context.Context, key Key, patches []*patch.PatchEvent, opts PatchOptions) (Committed, error) {
	p, err := newPatching(opts, patches)
	if err != nil {
		return Committed{}, err
	}
	return s.commit(ctx, key, opts.On.Creation(), p)
}

// Preview is what a write would do: how the view after it differs from the one before,
// and the patches that it would log, with ids and times that a later call would not
// have. The difference's After is to look at, not to make patches from.
type Preview struct {
	fold.Difference
	Patches []*patch.PatchEvent
}

// Preview returns what [Store.ApplyPatch] would do, and writes nothing. Options,
// judgement and errors are as there; patches that are in the log already would do
// nothing.
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

func (p patching) offers() []patch.Record { return p.patches }

func (p patching) draft(d *draft) error {
	if err := d.match(); err != nil {
		return err
	}
	if len(d.missing) > 0 && p.opts.On.Creation() != "" && p.opts.On.Edition() != d.view.Edition() {
		return errErased
	}
	check := p.opts.Check()
	for from := 0; from < len(d.missing); {
		to := from
		for group := ""; to < len(d.missing); to++ { // patches of one group are judged as one
			one := &d.records[d.missing[to]]
			if to > from && (group == "" || one.Patch.Group() != group) {
				break
			}
			if err := notErased(*one); err != nil {
				return err
			}
			group = one.Patch.Group()
			based, err := p.base(one.Patch, d.view, to-from, to == 0)
			if err != nil {
				return err
			}
			one.Patch = based
		}
		check.AsOfNow = from > 0 || d.seen()
		if err := d.addPatches(d.missing[from:to], check); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// errErased: a patch may say what has been erased since its author looked.
var errErased = fmt.Errorf("%w: events have been erased since the patch's author looked; look again and make it anew", ErrConflict)

// notErased refuses a record that says of itself that it was erased: that is for receipts to
// say.
func notErased(r patch.Record) error {
	_, erased := records.Envelope(r).ErasedBy()
	for _, e := range r.Events() {
		_, own := e.ErasedBy()
		erased = erased || own
	}
	if !erased {
		return nil
	}
	return &patch.FieldError{Field: "customMetadata/" + patch.OwnMetadata, Problem: fmt.Sprintf("it says of record %q that it was erased, but it is new to the log", r.ID())}
}

// base gives a patch the base that the options say if it has none. It is the n-th from the
// view on; only the first of a call is based on what its author saw, since later ones have
// seen those before them.
func (p patching) base(one *patch.PatchEvent, v fold.View, n int, first bool) (*patch.PatchEvent, error) {
	switch {
	case !records.LacksBase(one):
	case p.opts.On.Creation() != "" && first:
		return one.WithBase(p.opts.On.PatchSeq()), nil
	case p.opts.On.Creation() != "" && n == 0:
		return one.WithBase(v.PatchSeq()), nil
	case p.opts.On.Creation() != "":
		return one.WithBase(v.Seq() + uint64(n)), nil
	case records.IsIndexed(one) && !p.opts.AsOfNow:
		return nil, &patch.FieldError{Field: "base", Problem: "a patch with indices must say which view they count from: " +
			"give it a base, pass the view in On, or set AsOfNow"}
	}
	return one, nil
}

// seen reports whether the log's newest patch is one of the call's own, logged by an
// earlier try, and the author of the first that is missing had seen all before those.
func (d *draft) seen() bool {
	base, ok := d.records[d.missing[0]].Patch.Base()
	own := false
	for _, r := range d.records[:d.missing[0]] {
		if b, based := r.Patch.Base(); based && b <= base {
			base, own = r.Seq, true
		}
	}
	return ok && own && base == d.view.PatchSeq()
}

// View returns the session's newest view: what [Store.Get] finds, without the state that
// sessions share. It fails with [ErrNotFound] if there is no such session.
func (s *Store) View(ctx context.Context, key Key) (fold.View, error) {
	session, err := s.Get(ctx, key)
	return session.View, err
}
