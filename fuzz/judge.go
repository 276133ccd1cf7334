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

// PatchNotFound is the reason of a [patch.Skip] for a revert of a patch that was not
// applied; a [Refusal] calls that Invalid.
const PatchNotFound = "patch not found"

// Refusal is the error for a patch that a store must refuse.
type Refusal struct {
	Kind string // one of the constants
	Text string // names the values at fault
	// Orphans are the pairs that the patch would break: responses and calls in the order of the visible log after
	// the patch, then calls that it hides, then events with a call at a forbidden position.
	Orphans []Orphan
	// Pinned are the ids of the pinned events that the patch would hide.
	Pinned []string
	// Blocking is the seq of the patch that blocks a revert.
	Blocking uint64
}

func (r *Refusal) Error() string { return r.Kind + ": " + r.Text }

func refuse(kind, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// Allow switches off a check.
type Allow int

const (
	AllowOrphans Allow = iota // patches may break pairs of calls and responses
	AllowPinned               // patches may hide pinned events
)

// Check returns nil if a store with this log must accept the patch, else a *[Refusal] with the first reason in the
// order unknown patch in log, base, form, bounds, pins, orphans. A group that the log already has is a fault of
// form. Check ignores ids and sizes. allowOrphans, like AllowOrphans, switches off the last check.
func (r *Reference) Check(p *patch.PatchEvent, allowOrphans bool, allowed ...Allow) error {
	_, err := r.CheckBatch([]*patch.PatchEvent{p}, allowOrphans, allowed...)
	return err
}

// CheckBatch checks patches of one batch: each as [Reference.Check] does, on the result of the patches before it,
// but only the first base, and they may share a group. It returns the index of the refused patch.
func (r *Reference) CheckBatch(patches []*patch.PatchEvent, allowOrphans bool, allowed ...Allow) (int, error) {
	if allowOrphans {
		allowed = append(slices.Clone(allowed), AllowOrphans)
	}
	now := r.clone()
	for i := range patches {
		if err := now.take(patches[i:i+1], r, allowed); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// CheckCall checks patches of one call: like [Reference.CheckBatch], but the orphans of adjacent patches of a group
// are checked together, as by [Reference.CheckAll], after everything else.
func (r *Reference) CheckCall(patches []*patch.PatchEvent, allowed ...Allow) error {
	now := r.clone()
	for len(patches) > 0 {
		n := Neighbours(patches)
		if err := now.take(patches[:n], r, allowed); err != nil {
			return err
		}
		patches = patches[n:]
	}
	return nil
}

// Neighbours returns the number of patches, from the first, that a store checks together: the adjacent patches
// of the first one's group, or 1.
func Neighbours(patches []*patch.PatchEvent) int {
	n := 1
	for patches[0] != nil && patches[0].Group() != "" && n < len(patches) && patches[n] != nil && patches[n].Group() == patches[0].Group() {
		n++
	}
	return n
}

// CheckAll checks patches that are one action, such as the reverts of [Reference.RevertAll]: like
// [Reference.CheckBatch], but orphans are checked once, by the visible logs before the first and after the last.
func (r *Reference) CheckAll(patches []*patch.PatchEvent, allowed ...Allow) error {
	return r.clone().take(patches, r, allowed)
}

// take applies patches that are checked together, unless they are refused. before is the model before the call.
func (r *Reference) take(patches []*patch.PatchEvent, before *Reference, allowed []Allow) error {
	visible := r.visible()
	for _, p := range patches {
		if _, err := r.judge(p, before, allowed); err != nil {
			return err
		}
		r.Apply(patch.Record{Seq: r.next(), Patch: p})
	}
	if slices.Contains(allowed, AllowOrphans) {
		return nil
	}
	return orphanRefusal(orphans(visible, r.visible(), r.newestInvocation()))
}

// judge checks everything except orphans. before is the model before the patch's batch.
func (r *Reference) judge(p *patch.PatchEvent, before *Reference, allowed []Allow) (step, error) {
	if p == nil {
		return step{}, refuse(Invalid, "the patch is nil")
	}
	for _, s := range r.skipped {
		if s.Reason == patch.UnknownType {
			return step{}, refuse(UnknownInLog, "the patch at seq %d", s.Seq)
		}
	}
	if base, ok := p.Base(); ok && r.next() == before.next() {
		switch {
		case r.PatchSeq() > base:
			return step{}, refuse(Conflict, "the newest patch has seq %d, the base is %d", r.PatchSeq(), base)
		case base > r.Seq():
			return step{}, refuse(Invalid, "the base is %d, the last seq is %d", base, r.Seq())
		}
	}
	if err := p.Validate(); err != nil {
		return step{}, refuse(Invalid, "%v", err)
	}
	if before.holdsGroup(p.Group()) {
		return step{}, refuse(Invalid, "the log has a group %q already", p.Group())
	}
	s, reason, blocking := r.step(p)
	switch reason {
	case OutOfRange:
		return s, refuse(reason, "start %d, count %d of %d visible events", p.Start(), p.Count(), len(r.visible()))
	case NotFound:
		return s, refuse(reason, "%q", p.EventID())
	case PatchNotFound:
		return s, refuse(Invalid, "no applied patch has the id %q", p.PatchID())
	case Blocked:
		refusal := refuse(reason, "the patch %q stands in the way", blocking.id)
		refusal.Blocking = blocking.seq
		return s, refusal
	}
	if hidden := r.hidesPinned(s); len(hidden) > 0 && !slices.Contains(allowed, AllowPinned) {
		refusal := refuse(Pinned, "%q", hidden)
		refusal.Pinned = hidden
		return s, refusal
	}
	return s, nil
}

// hidesPinned returns the ids of the pinned events that the step hides. A revert may hide them.
func (r *Reference) hidesPinned(s step) []string {
	var ids []string
	for _, n := range s.out {
		if s.of == nil && n.event != nil && r.isPinned(n) {
			ids = append(ids, n.event.ID())
		}
	}
	return ids
}

// holdsGroup reports whether a patch in the log, applied or skipped, has the group.
func (r *Reference) holdsGroup(group string) bool {
	return group != "" && slices.ContainsFunc(r.log, func(rec patch.Record) bool {
		return rec.Patch != nil && rec.Patch.Group() == group
	})
}

func orphanRefusal(found []Orphan) error {
	if len(found) == 0 {
		return nil
	}
	var text []string
	for _, o := range found {
		text = append(text, o.text)
	}
	refusal := refuse(OrphanedCall, "%s", strings.Join(text, "; "))
	refusal.Orphans = found
	return refusal
}
