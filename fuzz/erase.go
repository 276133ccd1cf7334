package fuzz

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Erased returns a log of which erasures have taken what their receipts say.
func Erased(records []patch.Record) []patch.Record {
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

// Place names an event of a log: the seq of its record, and its index among the events that
// the record brought; -1 is what a patch says besides its events.
type Place struct {
	Seq   uint64
	Index int
}

// Erase says what an erasure takes of the model's log that names events and patches by their
// ids: these, without what is erased already, and what patches have put in in their place, at
// any depth and in any place of their groups; with keep only what is named. An event that is blank, while
// what stands for it was kept, is erased once more, but not with keep.
func (r *Reference) Erase(ids []string, values patch.Values, keep bool) patch.Erasure {
	set := map[Place]bool{}
	blank := map[Place]bool{}
	events := map[uint64]int{}
	for _, rec := range r.log {
		whole := slices.Contains(ids, rec.ID())
		if p := rec.Patch; p != nil {
			if _, receipt := p.Erasure(); receipt {
				continue
			}
			events[rec.Seq] = len(p.NewEvents())
			_, blank[Place{rec.Seq, -1}] = p.Erased()
			set[Place{rec.Seq, -1}] = whole
		}
		for i, e := range rec.Events() {
			at := Place{rec.Seq, i}
			blank[at] = e.IsBlank(values)
			if blank[at] && !keep && r.kept(at) {
				blank[at] = false
			}
			set[at] = !blank[at] && (whole || slices.Contains(ids, e.ID()))
		}
	}
	for again := !keep; again; {
		again = false
		for _, a := range r.applied {
			if a.of != nil || a.pin != nil {
				continue
			}
			out := r.tookOut(a)
			for _, n := range a.in {
				at := eventPlace(n)
				if n.event == nil || set[at] || !slices.ContainsFunc(out, func(of *node) bool { return set[eventPlace(of)] }) {
					continue
				}
				set[at], again = true, true
			}
		}
	}
	out := patch.Erasure{Values: values, KeepsSummaries: keep}
	for _, rec := range r.log {
		var within []int
		for i := range rec.Events() {
			if at := (Place{rec.Seq, i}); set[at] && !blank[at] {
				within = append(within, i)
			}
		}
		own := Place{rec.Seq, -1}
		if len(within) == 0 && (!set[own] || blank[own]) {
			continue
		}
		if rec.Patch != nil && len(within) < events[rec.Seq] {
			if out.Within == nil {
				out.Within = map[uint64][]int{}
			}
			out.Within[rec.Seq] = within
		}
		if last := len(out.Seqs) - 1; last >= 0 && out.Seqs[last].To+1 == rec.Seq {
			out.Seqs[last].To = rec.Seq
		} else {
			out.Seqs = append(out.Seqs, patch.Span{From: rec.Seq, To: rec.Seq})
		}
	}
	return out
}

// kept reports whether the newest receipt about an event keeps what stands for it.
func (r *Reference) kept(at Place) (kept bool) {
	for _, rec := range r.log {
		if rec.Patch == nil {
			continue
		}
		if e, ok := rec.Patch.Erasure(); ok && rec.Seq > at.Seq && e.CoversEvent(at.Seq, at.Index) {
			kept = e.KeepsSummaries
		}
	}
	return kept
}

// Hidden says of the events that patches have put out of sight, and that are out of it, since which
// record each is. It leaves out those that are pinned.
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
	if n.by == nil {
		return Place{n.seq, 0}
	}
	return Place{n.by.seq, slices.Index(n.by.in, n)}
}

// unit returns the patches that mean one thing with one.
func (r *Reference) unit(of *applied) []*applied {
	if of.group == "" {
		return []*applied{of}
	}
	return slices.DeleteFunc(slices.Clone(r.applied), func(a *applied) bool { return a.of != nil || a.pin != nil || a.group != of.group })
}

// tookOut returns the events that a patch took out, with all of its group, the last first.
func (r *Reference) tookOut(of *applied) (out []*node) {
	for _, a := range slices.Backward(r.unit(of)) {
		for _, n := range a.out {
			if n.event != nil {
				out = append(out, n)
			}
		}
	}
	return out
}
