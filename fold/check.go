package fold

import (
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// CheckOptions disables rules for patches. The zero value disables none.
type CheckOptions struct {
	// AllowOrphans accepts a patch that separates a function call from its response. It also accepts a patch
	// after which model APIs would refuse the visible log.
	AllowOrphans bool

	// AllowPinned accepts a patch that hides a pinned event.
	AllowPinned bool

	// AllowWaiting accepts a patch that hides a long-running call to which author "user" has not responded. The
	// call must not belong to the newest invocation. When the response arrives, the caller must restore the
	// call.
	AllowWaiting bool

	// AsOfNow ignores the patch's base. The indices of the patch then refer to this view.
	AsOfNow bool
}

// PatchOptions says what the author of patches has seen, and disables rules for these patches.
type PatchOptions struct {
	// On is the view from which the patches were made. If a patch has no base, On's PatchSeq becomes its base.
	On View

	// AsOfNow says that indices refer to the log at the time of the call. Without it, a patch with indices
	// needs a base or On.
	AsOfNow bool

	// These options have the same meaning as in [CheckOptions].
	AllowOrphans, AllowPinned, AllowWaiting bool
}

// Check returns the options for [View.Check].
func (o PatchOptions) Check() CheckOptions {
	return CheckOptions{AllowOrphans: o.AllowOrphans, AllowPinned: o.AllowPinned, AllowWaiting: o.AllowWaiting, AsOfNow: o.AsOfNow}
}

// Committed is the result of a write to a log.
type Committed struct {
	// Records contains the records as they are logged, with seqs, ids and times, in the order of the call. For
	// a retry, it contains the existing records. Partial events are left out.
	Records []patch.Record

	// View is the view after the write. Before is the view before the write, if the log provides it.
	View, Before View
}

// Check reports whether the patch may be logged directly after the view. If it returns nil, [View.Apply] can
// apply the patch. Check applies these rules in order and returns the first error:
//
//   - If the patch is nil, the error matches [patch.ErrInvalid].
//   - If the log has a patch of unknown type, every patch is refused with [ErrUnknownPatch].
//   - If the log has a patch newer than the patch's base, the error is a *[ConflictError]. If the base is
//     greater than the log's last seq, the error matches [patch.ErrInvalid]. A patch without a base refers to
//     this view.
//   - If the patch is malformed, the error is a *[patch.FieldError], which matches [patch.ErrInvalid].
//   - If the patch cannot be applied, the error matches [ErrOutOfRange] or [ErrEventNotFound]. For a revert, it
//     is a *[patch.FieldError] if the target does not exist, and otherwise a *[BlockedError].
//   - If the patch would hide a pinned event, the error is a *[PinnedError]. Reverts are exempt from this rule.
//   - If the patch would leave an orphan, the error is an *[OrphanError].
//
// If the view needs more records of its log to check a revert, the error is a *[MissingRecordsError]. The
// caller must ensure that the log does not contain the patch's id or group.
//
// The first use of Check on a view takes time linear in the number of visible events. Later uses take time
// linear in the number of events that the patch affects.
func (v View) Check(p *patch.PatchEvent, opts CheckOptions) error {
	_, err := v.check(p, opts)
	return err
}

func (v View) check(p *patch.PatchEvent, opts CheckOptions) (edit, error) {
	if p == nil {
		return edit{}, fmt.Errorf("%w: the patch is nil", patch.ErrInvalid)
	}
	if v.hasUnknownPatch {
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

// Preview returns the view that the patches would produce if they were logged together, in order. If a patch is
// refused, it returns the error. [View.Diff] returns the changes.
//
// Each patch is checked as [View.Check] does, on the view after the patches before it, with two exceptions.
// Only the base of the first patch is checked, because the author has seen the other patches. Adjacent patches
// of one group are checked for orphans as one patch, after all other rules.
//
// If a revert needs records, the error is a *[MissingRecordsError] that names the records needed so far. After
// the caller has supplied them, another such error may follow.
func (v View) Preview(patches []*patch.PatchEvent, opts CheckOptions) (View, error) {
	if slices.Contains(patches, nil) {
		return View{}, fmt.Errorf("%w: a patch is nil", patch.ErrInvalid)
	}
	supplied := slices.Clip(v.supplied)
	for i, p := range patches { // a revert may restore events that earlier patches added
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
			return View{}, missing // results computed from placeholders are invalid
		}
		if err != nil {
			return View{}, err
		}
		at, i, opts.AsOfNow = next, end, true
	}
	at.supplied, at.missing = nil, nil
	return at, nil
}

func (v View) checkGroup(patches []*patch.PatchEvent, opts CheckOptions) (View, error) {
	if len(patches) == 1 {
		e, err := v.check(patches[0], opts)
		if err != nil {
			return View{}, err
		}
		return v.applyEdit(e), nil
	}
	memberOpts := opts
	memberOpts.AllowOrphans = true
	at := v
	for _, p := range patches {
		e, err := at.check(p, memberOpts)
		if err != nil {
			return View{}, err
		}
		at, memberOpts.AsOfNow = at.applyEdit(e), true
	}
	return at, v.checkGroupOrphans(at, opts)
}
