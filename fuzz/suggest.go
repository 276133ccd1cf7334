package fuzz

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// passes reports whether the patch would orphan no call and hide no pinned event if it removed count visible
// events from index start.
func (r *Reference) passes(p *patch.PatchEvent, start, count int, allowed []Allow) bool {
	s := r.spliced(p, start, count)
	return len(orphans(r.visible(), visibleOf(s.after), r.newestInvocation())) == 0 &&
		(slices.Contains(allowed, AllowPinned) || len(r.hidesPinned(s)) == 0)
}

// formAndBounds returns the patch's own span of visible events, if it has one.
func (r *Reference) formAndBounds(p *patch.PatchEvent) (start, count int, ok bool) {
	if p.Validate() != nil || p.Type() == patch.Revert || p.Type() == patch.Pin || p.Type() == patch.Unpin {
		return 0, 0, false
	}
	start, count, reason := r.span(p)
	return start, count, reason == ""
}

// SmallestSpan returns the smallest span that contains the patch's own and with which the splice or summarise
// passes the checks for pins, unless allowed, and orphans; of equally small spans the first. ok is false if there
// is none, if the patch is malformed or out of range, and for other types.
func (r *Reference) SmallestSpan(p *patch.PatchEvent, allowed ...Allow) (start, count int, ok bool) {
	ownStart, ownCount, ok := r.formAndBounds(p)
	if !ok || p.Type() == patch.TruncateBefore {
		return 0, 0, false
	}
	n := len(r.visible())
	for count := ownCount; count <= n; count++ {
		for start := 0; start+count <= n; start++ {
			contains := start <= ownStart && ownStart+ownCount <= start+count
			if contains && r.passes(p, start, count, allowed) {
				return start, count, true
			}
		}
	}
	return 0, 0, false
}

// NearestEarlier returns the id of the nearest visible event before that of a truncate_before for which the patch
// would pass the checks for pins, unless allowed, and orphans. It skips events whose id an earlier visible event
// has. ok is false if there is none, if the patch is malformed or its event is not visible, and for other types.
func (r *Reference) NearestEarlier(p *patch.PatchEvent, allowed ...Allow) (eventID string, ok bool) {
	_, own, ok := r.formAndBounds(p)
	if !ok || p.Type() != patch.TruncateBefore {
		return "", false
	}
	for i := own - 1; i >= 0; i-- {
		id := r.visible()[i].event.ID()
		_, first, _ := r.span(patch.NewTruncateBefore(id))
		if first == i && r.passes(p, 0, i, allowed) {
			return id, true
		}
	}
	return "", false
}
