package fold

import (
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// CheckOptions disables some of the rules for patches. The zero value disables none.
type CheckOptions struct {
	// AllowOrphans accepts a patch that separates a function call from its response, or leaves a visible log that model
	// APIs refuse.
	AllowOrphans bool

	// AllowPinned accepts a patch that hides a pinned event.
	AllowPinned bool

	// AllowWaiting accepts a patch that hides a long-running call without a response by author "user", unless it belongs to
	// the newest invocation. The caller must restore the call when the response arrives.
	AllowWaiting bool

	// AsOfNow ignores the patch's base: its indices refer to the log as the view has it.
	AsOfNow bool
}

// PatchOptions say what the author of patches has seen, and disable some rules for them.
type PatchOptions struct {
	// On is the view that the patches were made from. Its PatchSeq becomes the base of a patch that has none.
	On View

	// AsOfNow says that indices refer to the log at the time of the call. Without it, a patch with indices needs a
	// base, or On.
	AsOfNow bool

	// As in [CheckOptions].
	AllowOrphans, AllowPinned, AllowWaiting bool
}

// Check returns the check options.
func (o PatchOptions) Check() CheckOptions {
	return CheckOptions{AllowOrphans: o.AllowOrphans, AllowPinned: o.AllowPinned, AllowWaiting: o.AllowWaiting, AsOfNow: o.AsOfNow}
}

// Committed is the result of a write to a log.
type Committed struct {
	// Records are the records as they are logged, with seqs, ids and times, in the order of the call. For a retry they
	// are the existing records. Partial events are left out.
	Records []patch.Record

	// View is the view after the write. Before is the view before it, if the log provides it.
	View, Before View
}

// Check reports whether the patch may be logged directly after the view. If it returns nil, [View.Apply] will apply the
// patch. Check applies the rules in this order and returns the first refusal:
//
//   - [patch.ErrInvalid] if the patch is nil;
//   - [ErrUnknownPatch], whatever the patch, if the log holds a patch of unknown type;
//   - a *[ConflictError] if the log's newest patch is above the patch's base, and [patch.ErrInvalid] if the
//     base is above the log's last seq; a patch without base refers to the log as the view has it;
//   - a *[patch.FieldError], which matches [patch.ErrInvalid], if the patch is malformed;
//   - [ErrOutOfRange] or [ErrEventNotFound]; for a revert a *[patch.FieldError] if there is no such patch, or a
//     *[BlockedError];
//   - a *[PinnedError], unless it is a revert;
//   - an *[OrphanError].
//
// For a revert, the error is a *[MissingRecordsError] if the view needs more records of its log to decide. The caller
// must check that the log does not have the patch's id or group.
//
// The first call on a view takes time linear in its visible events, later ones in the events that the patch touches.
func (v View) Check(p *patch.PatchEvent, opts CheckOptions) error {
	_, err := v.check(p, opts)
	return err
}

func (v View) check(p *patch.PatchEvent, opts CheckOptions) (edit, error) {
	if p == nil {
		return edit{}, fmt.Errorf("%w: the patch is nil", patch.ErrInvalid)
	}
	if v.unknown {
		return edit{}, ErrUnknownPatch
	}
	if base, ok := p.Base(); ok && !opts.AsOfNow {
		if base > v.seq {
			return edit{}, invalidBase(base, v.seq)
		}
		if base < v.patchSeq {
			return edit{}, &ConflictError{Base: base, Newest: v.patchSeq}
		}
	}
	if err := v.load(); err != nil {
		return edit{}, err
	}
	e, err := v.edit(p)
	if errors.Is(err, errBlocked) {
		err = v.blockedError(v.patches.find(p.PatchID()))
	}
	if err != nil {
		return edit{}, err
	}
	if e.target == nil && !opts.AllowPinned {
		if pinned := v.pinnedIn(e.first, e.end); len(pinned) > 0 {
			return edit{}, &PinnedError{pinned}
		}
	}
	if !opts.AllowOrphans && e.pin == nil && !e.isReceipt() {
		if err := v.checkOrphans(e, opts); err != nil {
			return edit{}, err
		}
	}
	return e, nil
}

// Preview returns the view that the patches would give if they were logged together, in order, or the first refusal.
// [View.Diff] lists the differences. Each patch is checked as by [View.Check], after the patches before it, with two
// exceptions: only the first patch's base is checked, since its author has seen the others; and adjacent patches of one
// group are checked for orphans as one patch, after all other rules. A *[MissingRecordsError] names the records needed
// so far; with them supplied, another may follow.
func (v View) Preview(patches []*patch.PatchEvent, opts CheckOptions) (View, error) {
	if slices.Contains(patches, nil) {
		return View{}, fmt.Errorf("%w: a patch is nil", patch.ErrInvalid)
	}
	supplied := slices.Clip(v.supplied)
	for i, p := range patches { // a revert may restore events of earlier patches
		supplied = append(supplied, patch.Record{Seq: v.seq + 1 + uint64(i), Patch: p})
	}
	at := v.WithRecords(supplied)
	at.missing = &missingRecords{}
	for i := 0; i < len(patches); {
		end := i + 1
		for group := patches[i].Group(); group != "" && end < len(patches) && patches[end].Group() == group; {
			end++
		}
		next, err := at.checkGroup(patches[i:end], opts)
		if missing := at.missing.errorUpTo(v.seq); missing != nil {
			return View{}, missing // results computed with placeholders are invalid
		}
		if err != nil {
			return View{}, err
		}
		at, i, opts.AsOfNow = next, end, true
	}
	at.supplied, at.missing = nil, nil
	return at, nil
}

// checkGroup checks patches of one group together.
func (v View) checkGroup(patches []*patch.PatchEvent, opts CheckOptions) (View, error) {
	if len(patches) == 1 {
		e, err := v.check(patches[0], opts)
		if err != nil {
			return View{}, err
		}
		return v.applyEdit(e), nil
	}
	each := opts
	each.AllowOrphans = true
	at := v
	for _, p := range patches {
		e, err := at.check(p, each)
		if err != nil {
			return View{}, err
		}
		at, each.AsOfNow = at.applyEdit(e), true
	}
	return at, v.checkTogether(at, opts)
}
