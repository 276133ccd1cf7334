package fold

import (
	"errors"
	"fmt"

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
	// has not answered, unless it is of the newest invocation. Whoever sets it sees to it
	// that the call is in sight again when its answer comes.
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
// which happens for reverts alone. Whether the log holds the patch's id or group already
// is for whoever keeps the log to say.
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

// Preview returns what the patch would do, or the error of [View.Check]. It changes
// nothing, and costs nothing when dropped. The difference's After is to look at, not to
// make patches from.
func (v View) Preview(p *patch.PatchEvent, opts CheckOptions) (Difference, error) {
	e, err := v.check(p, opts)
	if err != nil {
		return Difference{}, err
	}
	next := v.edited(e)
	next.hand = nil
	d := Difference{Before: v, After: next, First: e.first, StateChanged: v.net().changed(next.net())}
	for i, n := range e.added() {
		d.Added = append(d.Added, Visible{e.first + i, n.event})
	}
	for i, event := range v.eventsIn(e.first, e.end) {
		d.Removed = append(d.Removed, Visible{i, event})
	}
	d.TokensSaved = tokensOf(d.Removed) - tokensOf(d.Added)
	return d, nil
}
