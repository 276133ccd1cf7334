package fuzz

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// EraseLog returns the log after its receipts have blanked the records that they cover.
func EraseLog(records []patch.Record) []patch.Record {
	out := append([]patch.Record(nil), records...)
	for _, rec := range records {
		if rec.Patch == nil {
			continue
		}
		e, ok := rec.Patch.Erasure()
		for i := range out {
			if ok && out[i].Seq < rec.Seq {
				out[i] = e.Blank(out[i], rec.ID())
			}
		}
	}
	return out
}

// Place identifies an event of a log by the seq of its record and its index among the record's events. The index -1
// means the other fields of a patch.
type Place struct {
	Seq   uint64
	Index int
}

// RevertBlankSummaries returns the ids of the patches that the closing commit of an erasure reverts, in order. It
// also returns the ids of the blank summaries that stay visible, oldest first.
//
// Visible blank summaries are reverted with their groups, newest first. A group is reverted only if its patches keep
// state, insert only summaries, and hide an event that is not blank. The argument maxGrowth limits the growth of the
// visible log in tokens. One chain of nested summaries may exceed this limit.
func (r *Reference) RevertBlankSummaries(maxGrowth int) (reverts, notReverted []string) {
	now := r.clone()
	queue := now.blankSummaries()
	growth, size := 0, now.tokens()
	pathStart, onPath := 0, true
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		next, ids := now.afterRevert(n)
		if next == nil {
			continue
		}
		onPath = onPath && len(queue) >= pathStart
		if growth += next.tokens() - size; growth > maxGrowth && !onPath {
			break
		}
		pathStart = len(queue)
		for _, shown := range next.blankSummaries() {
			if !slices.Contains(now.nodes, shown) {
				queue = append(queue, shown)
			}
		}
		now, size, reverts = next, next.tokens(), append(reverts, ids...)
	}
	return reverts, idsOf(eventsOf(now.blankSummaries()))
}

// afterRevert reverts the patches that inserted the blank summary n. It returns the new model and the ids of the
// reverted patches. If n must stay, it returns nil.
func (r *Reference) afterRevert(n *node) (next *Reference, ids []string) {
	if n.insertedBy == nil || !r.hidesUnerased(n, map[*node]bool{}) {
		return nil, nil
	}
	ids, _, ok := r.RevertAll(n.insertedBy.id)
	if !ok {
		return nil, nil
	}
	members := r.groupOf(n.insertedBy)
	for _, a := range members {
		p := r.log[slices.IndexFunc(r.log, func(rec patch.Record) bool { return rec.Seq == a.seq })].Patch
		isOther := func(e *patch.Event) bool { return p.Type() != patch.Summarise && !e.IsSummary() }
		if p.StatePolicy() != patch.Keep || slices.ContainsFunc(p.NewEvents(), isOther) {
			return nil, nil
		}
	}
	next = r.clone()
	for _, id := range ids {
		if !slices.ContainsFunc(members, func(a *applied) bool { return a.id == id }) {
			return nil, nil
		}
		s, _, _ := next.revertStep(next.findPatch(id))
		next.commit(s, applied{seq: next.nextSeq()})
	}
	return next, ids
}

// hidesUnerased reports whether the summary n hides an event, at any depth, that is not blank.
func (r *Reference) hidesUnerased(n *node, seen map[*node]bool) bool {
	if seen[n] || n.insertedBy == nil {
		return false
	}
	seen[n] = true
	return slices.ContainsFunc(r.removedBy(n.insertedBy), func(of *node) bool {
		return !of.event.IsBlank(patch.KeepValues) || r.hidesUnerased(of, seen)
	})
}

func (r *Reference) blankSummaries() []*node {
	all := filter(r.visible(), func(n *node) bool { return n.isSummary() && n.event.IsBlank(patch.KeepValues) })
	slices.SortStableFunc(all, func(a, b *node) int { return int(eventPlace(a).Seq) - int(eventPlace(b).Seq) })
	return all
}

func (r *Reference) tokens() (n int) {
	for _, one := range r.visible() {
		n += one.event.EstimatedTokens()
	}
	return n
}

// Erase returns the erasure that selects the events and patches with the given ids. Blank events and patches can be
// selected too. Unless summaries are kept, the erasure also covers events that patches inserted in place of a
// covered event before that event was blank. This applies at any depth, and to all patches of a group.
//
// If everything covered is blank already and no value of the initial state is erased, the erasure is empty.
func (r *Reference) Erase(ids []string, values patch.ValuePolicy, summaries patch.SummaryPolicy, initial bool) patch.Erasure {
	keepSummaries := summaries == patch.KeepSummaries
	covered := map[Place]bool{}
	blank := map[Place]bool{}
	for _, rec := range r.log {
		isSelected := slices.Contains(ids, rec.ID())
		if p := rec.Patch; p != nil {
			if _, receipt := p.Erasure(); receipt {
				continue
			}
			_, blank[Place{rec.Seq, -1}] = p.ErasedBy()
			covered[Place{rec.Seq, -1}] = isSelected
		}
		for i, e := range rec.Events() {
			at := Place{rec.Seq, i}
			blank[at] = e.IsBlank(values)
			covered[at] = isSelected || slices.Contains(ids, e.ID())
		}
	}
	for changed := !keepSummaries; changed; {
		changed = false
		for _, a := range r.applied {
			if a.target != nil || a.pin != nil {
				continue
			}
			out := r.removedBy(a)
			for _, n := range a.in {
				at := eventPlace(n)
				if n.event == nil || covered[at] || !slices.ContainsFunc(out, func(of *node) bool { return covered[eventPlace(of)] && a.seq <= r.blankSince(eventPlace(of)) }) {
					continue
				}
				covered[at], changed = true, true
			}
		}
	}
	out := patch.Erasure{Values: values, Summaries: summaries}
	hasContent := initial
	for at := range covered {
		hasContent = hasContent || covered[at] && !blank[at]
	}
	if !hasContent {
		return out
	}
	for _, rec := range r.log {
		var within []int
		for i := range rec.Events() {
			if at := (Place{rec.Seq, i}); covered[at] {
				within = append(within, i)
			}
		}
		own := Place{rec.Seq, -1}
		if len(within) == 0 && !covered[own] {
			continue
		}
		if rec.Patch != nil && len(within) < len(rec.Patch.NewEvents()) {
			if out.EventIndices == nil {
				out.EventIndices = map[uint64][]int{}
			}
			out.EventIndices[rec.Seq] = within
		}
		if last := len(out.Seqs) - 1; last >= 0 && out.Seqs[last].To+1 == rec.Seq {
			out.Seqs[last].To = rec.Seq
		} else {
			out.Seqs = append(out.Seqs, patch.Span{From: rec.Seq, To: rec.Seq})
		}
	}
	return out
}

// blankSince returns the seq from which an event was blank. Later patches cannot be derived from the content of the
// event.
func (r *Reference) blankSince(at Place) uint64 {
	since := ^uint64(0)
	for _, e := range r.receipts(at) {
		if e.ClosedAt > 0 {
			since = min(since, e.ClosedAt)
		}
	}
	return since
}

// receipts returns the erasures that cover an event, in log order.
func (r *Reference) receipts(at Place) (all []patch.Erasure) {
	for _, rec := range r.log {
		if rec.Patch == nil || rec.Seq <= at.Seq {
			continue
		}
		if e, ok := rec.Patch.Erasure(); ok && e.CoversEvent(at.Seq, at.Index) {
			all = append(all, e)
		}
	}
	return all
}

// Hidden returns the hidden events that are not pinned. The value for an event is the seq of the last patch that hid
// it.
func (r *Reference) Hidden() map[Place]uint64 {
	since := map[Place]uint64{}
	for _, a := range r.applied {
		for _, n := range a.out {
			if n.event != nil && !slices.Contains(r.nodes, n) && !r.isPinned(n) {
				since[eventPlace(n)] = a.seq
			}
		}
	}
	return since
}

func eventPlace(n *node) Place {
	if n.insertedBy == nil {
		return Place{n.seq, 0}
	}
	return Place{n.insertedBy.seq, slices.Index(n.insertedBy.in, n)}
}

// groupOf returns all patches of the patch's group. If the patch has no group, it returns only the patch.
func (r *Reference) groupOf(of *applied) []*applied {
	if of.group == "" {
		return []*applied{of}
	}
	return filter(r.applied, func(a *applied) bool { return a.target == nil && a.pin == nil && a.group == of.group })
}

// removedBy returns the events that a patch and its group removed. The events that the group's last patch removed
// come first.
func (r *Reference) removedBy(of *applied) (out []*node) {
	for _, a := range slices.Backward(r.groupOf(of)) {
		out = append(out, visibleOf(a.out)...)
	}
	return out
}
