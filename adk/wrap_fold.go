package adk

import (
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// item is an entry of a base's list: an event, or a carrier of patches.
type item struct {
	id      string       // in the base, see [eventID]
	event   *patch.Event // nil: a carrier
	carrier *carrier
}

// folded is a list of items as a log.
type folded struct {
	items   []item
	records []patch.Record
	view    fold.View // after the records
	newest  *carrier  // in the carriers' order
	left    []*carrier
}

// What items mean is defined by [foldWhole]: the events in their order, then the carriers in
// an order of their own, those that apply when it is their turn. A patch that names what it removes
// means the same before and after later events, so it has its place in the log where the
// base has it, or where it first applies. [folded.extend] does that for a list in which each
// carrier applies where it stands.

// extend returns the fold of the items and further ones, in the room that f's lists have: of
// two ways to go on, the second needs f.clipped. ok is false if what they mean is to be found
// out from the whole list.
func (f folded) extend(items []item) (next folded, ok bool) {
	next = f
	next.items = append(f.items, items...)
	for len(items) > 0 {
		n := 0
		for ; n < len(items) && items[n].event != nil; n++ {
			if slices.ContainsFunc(f.left, func(c *carrier) bool { return c.names(items[n].id) }) {
				return f, false
			}
		}
		if n > 0 {
			next = next.withEvents(items[:n])
			items = items[n:]
			continue
		}
		c := items[0].carrier
		patches, after, applies := c.on(next.view)
		if !applies || next.newest != nil && (next.newest.compare(c) > 0 || len(f.left) > 0 && next.newest.time.Equal(c.time)) {
			return f, false
		}
		next = next.withPatches(c, patches, after)
		items = items[1:]
	}
	return next, true
}

// with returns the fold of the items and further ones, of a session whose view without records
// is empty, and how many of its records are known to be the same.
func (f folded) with(items []item, empty fold.View) (next folded, same int) {
	if next, ok := f.clipped().extend(items); ok {
		return next, len(f.records)
	}
	return foldWhole(empty, slices.Concat(f.items, items)), 0
}

// clipped returns the same fold with no room in its lists.
func (f folded) clipped() folded {
	f.items, f.records = slices.Clip(f.items), slices.Clip(f.records)
	return f
}

// withEvents adds records of events.
func (f folded) withEvents(items []item) folded {
	from := len(f.records)
	for _, it := range items {
		f.records = append(f.records, patch.Record{Seq: uint64(len(f.records)) + 1, Event: it.event})
	}
	f.view = mustFold(f.view, f.records[from:])
	return f
}

// withPatches adds records of a carrier's patches, which give a view.
func (f folded) withPatches(c *carrier, patches []*patch.PatchEvent, after fold.View) folded {
	f.records = append(f.records, following(f.view, patches)...)
	f.view = after
	if f.newest == nil || f.newest.compare(c) < 0 {
		f.newest = c
	}
	return f
}

// following returns records of patches that have the seqs which follow a view's.
func following(v fold.View, patches []*patch.PatchEvent) []patch.Record {
	records := make([]patch.Record, len(patches))
	for i, p := range patches {
		records[i] = patch.Record{Seq: v.Seq() + uint64(i) + 1, Patch: p}
	}
	return records
}

// mustFold folds records that have the seqs which follow a view's. The view keeps all that
// patches take out, so that nothing can be missing.
func mustFold(v fold.View, records []patch.Record) (next fold.View) {
	var err error
	if len(records) == 1 {
		next, err = v.Apply(records[0])
	} else {
		next, err = fold.Fold(v, records)
	}
	if err != nil {
		panic(err)
	}
	return next
}

// foldWhole folds a list of items, on the view of a session without records.
func foldWhole(empty fold.View, items []item) folded {
	start := folded{view: empty}
	if f, ok := start.extend(items); ok {
		return f
	}
	applied := appliedOf(empty, items)
	f := start
	f.items = items
	passed := map[*carrier]bool{}
	apply := func() {
		for len(applied) > 0 && passed[applied[0]] {
			patches, after, ok := applied[0].on(f.view)
			if !ok {
				return
			}
			f = f.withPatches(applied[0], patches, after)
			applied = applied[1:]
		}
	}
	for _, it := range items {
		switch {
		case it.event != nil:
			f = f.withEvents([]item{it})
			if len(applied) > 0 && !applied[0].names(it.event.ID()) {
				continue
			}
		case slices.Contains(applied, it.carrier):
			passed[it.carrier] = true
		default:
			f = f.without(it.carrier)
		}
		apply()
	}
	for _, c := range applied {
		f = f.without(c)
	}
	return f
}

// without adds records of a carrier that does not apply.
func (f folded) without(c *carrier) folded {
	patches := c.skipped()
	f = f.withPatches(c, patches, mustFold(f.view, following(f.view, patches)))
	f.left = append(f.left, c)
	return f
}

// appliedOf returns the carriers that apply to a list of items, in the order in which they
// do. Each has its turn. Of those of one time, which says nothing of who has seen whom, one
// that does not apply has another turn when others have. One that is skipped stays so
// whatever comes later: its author may have been told.
func appliedOf(empty fold.View, items []item) (applied []*carrier) {
	var carriers []*carrier
	f := folded{view: empty}
	var events []item
	for _, it := range items {
		switch {
		case it.event != nil:
			events = append(events, it)
		case !it.carrier.unknown:
			carriers = append(carriers, it.carrier)
		}
	}
	v := f.withEvents(events).view
	slices.SortStableFunc(carriers, (*carrier).compare)
	for len(carriers) > 0 {
		n := 1
		for n < len(carriers) && carriers[n].time.Equal(carriers[0].time) {
			n++
		}
		waiting := slices.Clone(carriers[:n])
		carriers = carriers[n:]
		for progress := true; progress; {
			progress = false
			waiting = slices.DeleteFunc(waiting, func(c *carrier) bool {
				_, after, ok := c.on(v)
				if ok {
					v, progress = after, true
					applied = append(applied, c)
				}
				return ok
			})
		}
	}
	return applied
}

// continues reports whether a fold has the records of another one of the same session, with
// the same seqs, and then its own. The first n are known to be the same.
func (f folded) continues(g folded, n int) bool {
	if len(g.records) > len(f.records) {
		return false
	}
	for i := n; i < len(g.records); i++ {
		r, s := g.records[i], f.records[i]
		if r.ID() != s.ID() || (r.Patch == nil) != (s.Patch == nil) ||
			r.Patch != nil && r.Patch != s.Patch && r.Patch.String() != s.Patch.String() {
			return false
		}
	}
	return true
}
