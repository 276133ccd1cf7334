package fuzz

import (
	"fmt"
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
	// Blocking is the seq of the patch that is in the way of a revert, if that is why.
	Blocking uint64
}

func (r *Refusal) Error() string { return r.Kind + ": " + r.Text }

func refuse(kind, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// Check says whether a store that holds the log so far must refuse the patch
// (semantics, sections 4 and 5): nil if it must not, else a *[Refusal] with the first
// reason in the order unknown patch in log, base, form, bounds, orphans. What a store
// says about ids and sizes is not judged. With allowOrphans the last is left out.
// Check changes nothing.
func (r *Reference) Check(p *patch.PatchEvent, allowOrphans bool) error {
	if p == nil {
		return refuse(Invalid, "the patch is nil")
	}
	for _, s := range r.skipped {
		if s.Reason == patch.UnknownType {
			return refuse(UnknownInLog, "the patch at seq %d", s.Seq)
		}
	}
	if base, ok := p.Base(); ok {
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
	s, reason := r.step(p)
	switch reason {
	case OutOfRange:
		return refuse(reason, "start %d, count %d of %d visible events", p.Start(), p.Count(), len(r.visible()))
	case NotFound:
		return refuse(reason, "%q", p.EventID())
	case PatchNotFound:
		return refuse(Invalid, "no applied patch has the id %q", p.PatchID())
	case Blocked:
		_, _, blocking := r.reverted(p)
		refusal := refuse(reason, "the patch %q stands in the way", blocking.id)
		refusal.Blocking = blocking.seq
		return refusal
	}
	if allowOrphans {
		return nil
	}
	if found := orphans(r.visible(), visibleOf(s.after), r.newestInvocation()); len(found) > 0 {
		var text []string
		for _, o := range found {
			text = append(text, o.text)
		}
		refusal := refuse(OrphanedCall, "%s", strings.Join(text, "; "))
		refusal.Orphans = found
		return refusal
	}
	return nil
}

// orphansOf returns what the patch would break if it took out count visible events
// from index start on.
func (r *Reference) orphansOf(p *patch.PatchEvent, start, count int) []Orphan {
	return orphans(r.visible(), visibleOf(r.spliced(p, start, count).after), r.newestInvocation())
}

// formAndBounds returns the patch's own span of visible events, if it has one.
func (r *Reference) formAndBounds(p *patch.PatchEvent) (start, count int, ok bool) {
	if p.Validate() != nil || p.Type() == patch.Revert {
		return 0, 0, false
	}
	start, count, reason := r.span(p)
	return start, count, reason == ""
}

// SmallestSpan returns the smallest span that contains the patch's own [start,
// start+count) and for which a splice or summarise that puts in the same events passes
// the orphan check; of equally small ones that with the lowest start. It is the
// patch's own span if that passes. ok is false if there is none, if the patch is
// malformed or out of range, and for other types.
func (r *Reference) SmallestSpan(p *patch.PatchEvent) (start, count int, ok bool) {
	ownStart, ownCount, ok := r.formAndBounds(p)
	if !ok || p.Type() == patch.TruncateBefore {
		return 0, 0, false
	}
	n := len(r.visible())
	for count := ownCount; count <= n; count++ {
		for start := 0; start+count <= n; start++ {
			contains := start <= ownStart && ownStart+ownCount <= start+count
			if contains && len(r.orphansOf(p, start, count)) == 0 {
				return start, count, true
			}
		}
	}
	return 0, 0, false
}

// NearestEarlier returns the id of the nearest visible event before that of a
// truncate_before, for which the patch would pass the orphan check. Events whose id an
// earlier visible event has too are not named by it and passed over. ok is false if
// there is none, if the patch is malformed or its event is not visible, and for other
// types.
func (r *Reference) NearestEarlier(p *patch.PatchEvent) (eventID string, ok bool) {
	_, own, ok := r.formAndBounds(p)
	if !ok || p.Type() != patch.TruncateBefore {
		return "", false
	}
	for i := own - 1; i >= 0; i-- {
		id := r.visible()[i].event.ID()
		_, first, _ := r.span(patch.NewTruncateBefore(id))
		if first == i && len(r.orphansOf(p, 0, i)) == 0 {
			return id, true
		}
	}
	return "", false
}
