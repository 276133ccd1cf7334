package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// PatchOptions say what the author of a patch has seen, and which rules it is not held
// to.
type PatchOptions struct {
	// On is the view that the patch was made from: its PatchSeq becomes the base of a
	// patch that has none.
	On fold.View

	// AsOfNow says that indices mean the log as it is at the time of the call. Without
	// it, a patch with indices needs a base, or On.
	AsOfNow bool

	// AllowOrphans is [fold.CheckOptions.AllowOrphans].
	AllowOrphans bool

	// HideWaiting and Together are as in [fold.CheckOptions].
	HideWaiting bool
	Together    bool
}

// ApplyPatch logs patches, all of them in one durable commit or none. Each is judged by
// [fold.View.Check] on the log as the ones before leave it, and, with opts.Together, all
// of them by [fold.View.CheckOrphans]; of the bases only the
// first patch's is checked, since the call's own patches count as seen.
//
// Ids, times, temp: keys, shared scopes and retries are as for [Store.AppendEvents],
// for the events inside a patch too. A refusal matches [ErrDuplicateID], [ErrConflict],
// [ErrInvalid], [ErrOutOfRange], [ErrEventNotFound], [ErrOrphanedCall],
// [ErrUnknownPatch] or [ErrTooLarge], and nothing was written.
func (s *Store) ApplyPatch(ctx context.Context, key Key, opts PatchOptions, patches ...*patch.PatchEvent) (Committed, error) {
	records := make([]patch.Record, len(patches))
	for i, p := range patches {
		if p == nil {
			return Committed{}, fmt.Errorf("%w: patch %d of the call is nil", ErrInvalid, i)
		}
		records[i] = patch.Record{Patch: p}
	}
	return s.write(ctx, key, opts.On.Creation(), records, func(w *write) error {
		before := w.view
		for _, i := range w.missing {
			check, err := w.base(i, opts)
			if err != nil {
				return err
			}
			check.AllowOrphans = check.AllowOrphans || opts.Together
			if err := w.view.Check(w.records[i].Patch, check); err != nil {
				return err
			}
			if err := w.add(i); err != nil {
				return err
			}
		}
		if !opts.Together {
			return nil
		}
		return before.CheckOrphans(w.view, fold.CheckOptions{AllowOrphans: opts.AllowOrphans, HideWaiting: opts.HideWaiting})
	})
}

// Preview returns what the patch would do, and writes nothing. Options, judgement and
// errors are as for [Store.ApplyPatch]; a patch that is in the log already would do
// nothing.
func (s *Store) Preview(ctx context.Context, key Key, opts PatchOptions, p *patch.PatchEvent) (fold.Preview, error) {
	if p == nil {
		return fold.Preview{}, fmt.Errorf("%w: the patch is nil", ErrInvalid)
	}
	if err := key.Validate(); err != nil {
		return fold.Preview{}, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	view, err := s.view(ctx, h)
	if err != nil {
		return fold.Preview{}, err
	}
	w := write{store: s, handle: h, records: []patch.Record{{Patch: p}}}
	if err := w.begin(view, opts.On.Creation()); err != nil {
		return fold.Preview{}, err
	}
	if err := w.settle(ctx); err != nil {
		return fold.Preview{}, err
	}
	if len(w.missing) == 0 {
		return fold.Preview{View: view}, nil
	}
	preview, err := w.preview(opts)
	if err != nil {
		return fold.Preview{}, fmt.Errorf("session %s: %w", key, err)
	}
	return preview, nil
}

func (w *write) preview(opts PatchOptions) (fold.Preview, error) {
	check, err := w.base(0, opts)
	if err != nil {
		return fold.Preview{}, err
	}
	preview, err := w.view.Preview(w.records[0].Patch, check)
	if err != nil {
		return fold.Preview{}, err
	}
	return preview, w.add(0)
}

// base gives the patch with index i, if it has no base, the one that the options say,
// and says how it is to be checked. Of a call only the first base is checked; later
// patches have seen those before them.
func (w *write) base(i int, opts PatchOptions) (fold.CheckOptions, error) {
	p := w.records[i].Patch
	first := i == w.missing[0]
	_, has := p.Base()
	malformed, there := p.Field("base")
	switch {
	case has:
	case there && string(malformed) != "null": // the form check will say so
	case opts.On.Creation() != "" && first:
		p = p.WithBase(opts.On.PatchSeq())
	case opts.On.Creation() != "":
		p = p.WithBase(w.view.PatchSeq())
	case p.IsIndexed() && !opts.AsOfNow:
		return fold.CheckOptions{}, &patch.FieldError{Field: "base", Problem: "a patch with indices must say which view they count from: " +
			"give it a base, pass the view in On, or set AsOfNow"}
	}
	w.records[i].Patch = p
	return fold.CheckOptions{AllowOrphans: opts.AllowOrphans, HideWaiting: opts.HideWaiting, AnyBase: !first || w.seen(p)}, nil
}

// seen reports whether the log's newest patch is one of the call's own, logged by an
// earlier try, and the author of the first that is missing had seen all before those.
func (w *write) seen(p *patch.PatchEvent) bool {
	base, ok := p.Base()
	own := false
	for _, r := range w.records[:w.missing[0]] {
		if b, based := r.Patch.Base(); based && b <= base {
			base, own = r.Seq, true
		}
	}
	return ok && own && base == w.view.PatchSeq()
}
