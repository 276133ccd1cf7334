package fuzz

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Kinds of a [Refusal], in the order of the checks. OutOfRange, NotFound and Blocked are also reasons of a
// [patch.Skip].
const (
	UnknownInLog = "unknown patch in log"
	Conflict     = "conflict"
	Invalid      = "invalid"
	OutOfRange   = "out of range"
	NotFound     = "event not found"
	Blocked      = "revert blocked"
	Pinned       = "pinned"
	OrphanedCall = "orphaned call"
)

// PatchNotFound is the reason of a [patch.Skip] for a revert of a patch that was not applied. A [Refusal] of such a
// revert has the kind Invalid.
const PatchNotFound = "patch not found"

// Refusal is the error for a patch that a store must refuse.
type Refusal struct {
	Kind string // one of the constants UnknownInLog to OrphanedCall
	Text string // description with the values at fault
	// Orphans lists the pairs that the patch would break. The first elements are responses and calls, in the order
	// of the visible log after the patch. Then follow calls that the patch hides, and finally events with a call in
	// a forbidden position.
	Orphans []Orphan
	// Pinned are the ids of the pinned events that the patch would hide.
	Pinned []string
	// Blocking is the seq of the patch that blocks a revert. If AlreadyReverted is set, Blocking is the newest
	// active revert of the same patch.
	Blocking        uint64
	AlreadyReverted bool
}

func (r *Refusal) Error() string { return r.Kind + ": " + r.Text }

func refuse(kind, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// CheckOptions disables checks. The zero value disables none.
type CheckOptions struct {
	AllowOrphans bool // patches may break pairs of calls and responses
	AllowPinned  bool // patches may hide pinned events
}

// Check returns nil if a store with this log must accept the patches in one call. Otherwise, it returns a *[Refusal]
// with the first reason, in this order: unknown patch in log, base, form, bounds, pins, orphans. Ids and sizes are
// not checked.
//
// Each patch is checked as if the preceding patches were logged. Only the first base is checked. Adjacent patches of
// a group are checked for orphans together. If the log already has a group, a new patch of this group is malformed.
func (r *Reference) Check(opts CheckOptions, patches ...*patch.PatchEvent) error {
	if slices.Contains(patches, nil) {
		return refuse(Invalid, "the patch is nil")
	}
	now, visible := r.clone(), r.visible()
	for i, p := range patches {
		if err := now.judge(p, r, opts); err != nil {
			return err
		}
		now.Apply(patch.Record{Seq: now.nextSeq(), Patch: p})
		if i+1 < len(patches) && p.Group() != "" && patches[i+1].Group() == p.Group() {
			continue
		}
		after := now.visible()
		if found := orphans(visible, after, now.newestInvocation()); len(found) > 0 && !opts.AllowOrphans {
			return orphanRefusal(found)
		}
		visible = after
	}
	return nil
}

// judge makes all checks of patch p except the check for orphans. The argument before is the model before the call.
func (r *Reference) judge(p *patch.PatchEvent, before *Reference, opts CheckOptions) error {
	for _, s := range r.skipped {
		if s.Reason == patch.UnknownType {
			return refuse(UnknownInLog, "the patch at seq %d", s.Seq)
		}
	}
	if base, ok := p.Base(); ok && r.nextSeq() == before.nextSeq() {
		switch {
		case r.PatchSeq() > base:
			return refuse(Conflict, "the newest patch has seq %d, the base is %d", r.PatchSeq(), base)
		case base > r.Seq():
			return refuse(Invalid, "the base is %d, the last seq is %d", base, r.Seq())
		}
	}
	if err := p.Validate(); err != nil {
		return refuse(Invalid, "%v", err)
	}
	if before.hasGroup(p.Group()) {
		return refuse(Invalid, "the log has a group %q already", p.Group())
	}
	s, reason, blocking := r.step(p)
	switch reason {
	case OutOfRange:
		return refuse(reason, "start %d, count %d of %d visible events", p.Start(), p.Count(), len(r.visible()))
	case NotFound:
		return refuse(reason, "%q", p.EventID())
	case PatchNotFound:
		return refuse(Invalid, "no applied patch has the id %q", p.PatchID())
	case Blocked:
		refusal := refuse(reason, "the patch %q blocks the revert", blocking.id)
		refusal.Blocking, refusal.AlreadyReverted = blocking.seq, !r.isActive(r.findPatch(p.PatchID()))
		return refusal
	}
	if hidden := r.hidesPinned(s); len(hidden) > 0 && !opts.AllowPinned {
		refusal := refuse(Pinned, "%q", hidden)
		refusal.Pinned = hidden
		return refusal
	}
	return nil
}

// hidesPinned returns the ids of the pinned events that a step hides. For a revert, it returns none, because a
// revert may hide pinned events.
func (r *Reference) hidesPinned(s step) []string {
	if s.target != nil {
		return nil
	}
	return idsOf(eventsOf(filter(visibleOf(s.out), r.isPinned)))
}

// hasGroup reports whether a patch of the log has the group. Skipped patches count too.
func (r *Reference) hasGroup(group string) bool {
	return group != "" && slices.ContainsFunc(r.log, func(rec patch.Record) bool {
		return rec.Patch != nil && rec.Patch.Group() == group
	})
}

func orphanRefusal(found []Orphan) *Refusal {
	var text []string
	for _, o := range found {
		text = append(text, o.text)
	}
	refusal := refuse(OrphanedCall, "%s", strings.Join(text, "; "))
	refusal.Orphans = found
	return refusal
}

// Suggest returns the span that a store suggests instead of the patch's own span. For a splice or summarise, the
// span is the smallest span that contains the patch's own span and passes the checks of pins and orphans. If several
// spans are equally small, Suggest returns the first of them.
//
// For a truncate_before, the span ends before the nearest earlier event at which the patch passes. An event is
// ignored if an earlier visible event has the same id.
//
// Suggest sets ok to false if there is no such span, if the patch is malformed or out of range, or if the patch has
// another type.
func (r *Reference) Suggest(p *patch.PatchEvent, opts CheckOptions) (start, count int, ok bool) {
	if t := p.Type(); p.Validate() != nil || t != patch.Splice && t != patch.Summarise && t != patch.TruncateBefore {
		return 0, 0, false
	}
	first, ownCount, reason := r.span(p)
	if reason != "" {
		return 0, 0, false
	}
	n := len(r.visible())
	passes := func(start, count int) bool {
		s := r.spliced(p, start, count)
		return len(orphans(r.visible(), visibleOf(s.after), r.newestInvocation())) == 0 &&
			(opts.AllowPinned || len(r.hidesPinned(s)) == 0)
	}
	if p.Type() == patch.TruncateBefore {
		for i := ownCount - 1; i >= 0; i-- {
			if r.indexOfID(r.visible()[i].event.ID()) == i && passes(0, i) {
				return 0, i, true
			}
		}
		return 0, 0, false
	}
	for count := ownCount; count <= n; count++ {
		for start := max(0, first+ownCount-count); start <= first && start+count <= n; start++ {
			if passes(start, count) {
				return start, count, true
			}
		}
	}
	return 0, 0, false
}
