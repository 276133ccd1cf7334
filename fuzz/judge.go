package fuzz

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Kinds of a [Refusal], in the order in which they are looked for. OutOfRange,
// NotFound and Blocked are reasons of a [patch.Skip] too.
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

// Refusal says why a patch must not be applied.
type Refusal struct {
	Kind string // one of the constants
	Text string // names the values at fault
	// Orphans are what the patch would break, if that is why: responses and calls as
	// they stand in the visible log after the patch, then calls that it hides, then
	// events that would stand where none with a call may.
	Orphans []Orphan
	// Pinned are the ids of the pinned events that the patch would hide, if that is why.
	Pinned []string
	// Blocking is the seq of the patch that is in the way of a revert, if that is why.
	Blocking uint64
}

func (r *Refusal) Error() string { return r.Kind + ": " + r.Text }

func refuse(kind, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// Allow is a reason for which a patch is not to be refused.
type Allow int

const (
	AllowOrphans Allow = iota // breaking what belongs together
	AllowPinned               // hiding pinned events
)

// Check says whether a store that holds the log so far must refuse the patch: nil if it must not, else a *[Refusal] with the first
// reason in the order unknown patch in log, base, form, bounds, pinned, orphans. A
// group that the log holds already is a fault of form. What a store says about ids and
// sizes is not judged. With allowOrphans the last is left out, and so is what else is
// allowed. Check changes nothing.
func (r *Reference) Check(p *patch.PatchEvent, allowOrphans bool, allowed ...Allow) error {
	_, err := r.CheckBatch([]*patch.PatchEvent{p}, allowOrphans, allowed...)
	return err
}

// CheckBatch says whether a store must refuse the patches if they are given to it in
// one batch: each is judged as by [Reference.Check] on what those before it leave,
// except that only the base of the first one is, and that they may name one group.
// The error is of the patch at the index.
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

// CheckCall says whether a store must refuse the patches if they are given to it in one
// call: as [Reference.CheckBatch], but what neighbours of one group would break is judged
// as by [Reference.CheckAll], after all else of them.
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

// Neighbours returns how many of the patches, from the first on, a store judges as one: all
// that are of its group and follow one another, or the first alone.
func Neighbours(patches []*patch.PatchEvent) int {
	n := 1
	for patches[0] != nil && patches[0].Group() != "" && n < len(patches) && patches[n] != nil && patches[n].Group() == patches[0].Group() {
		n++
	}
	return n
}

// CheckAll says whether a store must refuse the patches if they mean one thing, as what
// [Reference.RevertAll] says does: as [Reference.CheckBatch], but what they would break
// is judged for all together, by what is visible before the first and after the last.
func (r *Reference) CheckAll(patches []*patch.PatchEvent, allowed ...Allow) error {
	return r.clone().take(patches, r, allowed)
}

// take applies patches that are judged as one, unless they are refused. before is the model
// before all that are given with them.
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

// judge judges all but orphans. before is the model before the patch's batch.
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

// hidesPinned returns the ids of the pinned events that the step hides. A revert may.
func (r *Reference) hidesPinned(s step) []string {
	var ids []string
	for _, n := range s.out {
		if s.of == nil && n.event != nil && r.isPinned(n) {
			ids = append(ids, n.event.ID())
		}
	}
	return ids
}

// holdsGroup reports whether a patch in the log, be it skipped, names the group.
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
