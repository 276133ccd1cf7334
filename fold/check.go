package fold

import (
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// CheckOptions say which rules a patch is not held to. The zero value holds it to all.
type CheckOptions struct {
	// AllowOrphans accepts a patch that splits a function call from its response, or
	// leaves a visible log that a model's API refuses.
	AllowOrphans bool

	// AllowPinned accepts a patch that hides a pinned event.
	AllowPinned bool

	// HideWaiting accepts a patch that hides a long-running call which the user's side
	// has not answered, unless it is of the newest invocation. The caller restores
	// the call when its answer arrives.
	HideWaiting bool

	// AsOfNow accepts a patch whatever its base: it means the log as the view has it.
	AsOfNow bool
}

// Check reports whether an author may log the patch after the view's newest record;
// nil means that [View.Apply] will do what the patch says. It judges in this order, and
// the first refusal is the error:
//
//   - [patch.ErrInvalid] if the patch is nil;
//   - [ErrUnknownPatch], whatever the patch, if the log holds a patch of unknown type;
//   - a *[ConflictError] if the log's newest patch is above the patch's base, and
//     [patch.ErrInvalid] if the base is above the log's last seq; a patch without base
//     means the log as the view has it;
//   - a *[patch.FieldError], which matches [patch.ErrInvalid], if its form is wrong;
//   - [ErrOutOfRange] or [ErrEventNotFound]; for a revert a *[patch.FieldError] if there is
//     no such patch, or a *[BlockedError];
//   - a *[PinnedError] if it is no revert;
//   - an *[OrphanError].
//
// The error is a *[NeedError] if the view cannot tell before it is given more of its log,
// which happens for reverts alone. The caller checks whether the log
// has the patch's id or group already.
//
// Check takes time linear in the number of visible events, once for each view, and
// then in the number of events that the patch touches.
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

// Preview returns the view that the patches would give if they were logged together, in their order,
// or the error with which an author is refused to; nil patches are none. [View.Diff] says what would go and
// come. Each patch is judged as [View.Check] does,
// on the log as the ones before leave it, but for two things: only the first one's base
// is looked at, since its author has seen the others; and neighbours of one group are
// judged as one patch in whether they orphan calls, after all else. The first refusal is
// the error. A *[NeedError] says what is needed up to there; when that is handed in, more
// may be.
func (v View) Preview(patches []*patch.PatchEvent, opts CheckOptions) (View, error) {
	if slices.Contains(patches, nil) {
		return View{}, fmt.Errorf("%w: a patch is nil", patch.ErrInvalid)
	}
	hand := slices.Clip(v.hand)
	for i, p := range patches { // a revert may need what those before it put in
		hand = append(hand, patch.Record{Seq: v.seq + 1 + uint64(i), Patch: p})
	}
	at := v.With(hand)
	at.plan = &needs{}
	for i := 0; i < len(patches); {
		end := i + 1
		for group := patches[i].Group(); group != "" && end < len(patches) && patches[end].Group() == group; {
			end++
		}
		next, err := at.checkGroup(patches[i:end], opts)
		if need := at.plan.upTo(v.seq); need != nil {
			return View{}, need // whatever was found: it was looked for in placeholders
		}
		if err != nil {
			return View{}, err
		}
		at, i, opts.AsOfNow = next, end, true
	}
	at.hand, at.plan = nil, nil
	return at, nil
}

// checkGroup judges patches as one.
func (v View) checkGroup(patches []*patch.PatchEvent, opts CheckOptions) (View, error) {
	if len(patches) == 1 {
		e, err := v.check(patches[0], opts)
		if err != nil {
			return View{}, err
		}
		return v.edited(e), nil
	}
	each := opts
	each.AllowOrphans = true
	at := v
	for _, p := range patches {
		e, err := at.check(p, each)
		if err != nil {
			return View{}, err
		}
		at, each.AsOfNow = at.edited(e), true
	}
	return at, v.checkChange(at, opts)
}
