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

	// HideWaiting accepts a patch that hides a long-running call which the user's side
	// has not answered, unless it is of the newest invocation. Whoever sets it sees to it
	// that the call is in sight again when its answer comes.
	HideWaiting bool

	// Together says that the patches of a call mean one thing together: they are judged
	// for orphans by what all of them do, as [View.CheckOrphans] does, and not one by one.
	// For [View.Check], which has one patch, it means nothing.
	Together bool

	// AnyBase accepts a patch whatever its base: it means the log as the view has it.
	AnyBase bool
}

// Check reports whether an author may log the patch after the view's newest record;
// nil means that [View.Apply] will do what the patch says. It judges in this order
// (semantics, section 4), and the first refusal is the error:
//
//   - [patch.ErrInvalid] if the patch is nil;
//   - [ErrUnknownPatch], whatever the patch, if the log holds a patch of unknown type;
//   - a *[ConflictError] if the log's newest patch is above the patch's base, and
//     [patch.ErrInvalid] if the base is above the log's last seq; a patch without base
//     means the log as the view has it;
//   - a *[patch.Defect], which matches [patch.ErrInvalid], if its form is wrong;
//   - [ErrOutOfRange] or [ErrEventNotFound]; for a revert a *[patch.Defect] if there is
//     no such patch, or a *[BlockedError];
//   - an *[OrphanError].
//
// An error that matches [ErrSource] leaves it open whether a revert may be logged.
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
	if base, ok := p.Base(); ok && !opts.AnyBase {
		if base > v.seq {
			return edit{}, invalidBase(base, v.seq)
		}
		if base < v.patchSeq {
			return edit{}, &ConflictError{Base: base, Newest: v.patchSeq}
		}
	}
	e, err := v.edit(p)
	if errors.Is(err, errBlocked) {
		err = v.blockedError(p)
	}
	if err != nil {
		return edit{}, err
	}
	if !opts.AllowOrphans {
		if err := v.checkOrphans(e, opts); err != nil {
			return edit{}, err
		}
	}
	return e, nil
}

// Preview is what a patch would do.
type Preview struct {
	View    View           // as it would stand after the patch; to look at, not to make patches from
	Start   int            // the index of the first event that goes or comes; a provider's prompt cache can reuse what is before it
	Removed []*patch.Event // the visible events that go, in order
	Added   []*patch.Event // the visible events that come in their place

	StateChanged []string // the state keys that are set otherwise, come or go, in order
	TokensSaved  int      // about how many tokens a model's prompt gets shorter; below 0 if it gets longer
}

// Preview returns what the patch would do, or the error of [View.Check]. It changes
// nothing, and costs nothing when dropped.
func (v View) Preview(p *patch.PatchEvent, opts CheckOptions) (Preview, error) {
	v.ahead = &readAhead{} // what a preview reads is not for keeping
	e, err := v.check(p, opts)
	if err != nil {
		return Preview{}, err
	}
	next, err := v.Apply(patch.Record{Seq: v.seq + 1, Patch: p})
	if err != nil {
		return Preview{}, err
	}
	pre := Preview{View: next, Start: e.first, StateChanged: v.net().changed(next.net())}
	for _, n := range e.added() {
		pre.Added = append(pre.Added, n.event)
		pre.TokensSaved -= n.event.EstimatedTokens()
	}
	for i, removed := range v.EventsFrom(e.first) {
		if i == e.end {
			break
		}
		pre.Removed = append(pre.Removed, removed)
		pre.TokensSaved += removed.EstimatedTokens()
	}
	return pre, nil
}
