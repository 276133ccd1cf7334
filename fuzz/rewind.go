package fuzz

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Rewind returns the visible log and the state that the session has after it was
// rewound to the invocation whose first event has seq from (semantics, section 9). It
// changes nothing, and says nothing of the patches that bring it about.
func (r *Reference) Rewind(from uint64) (visible []*patch.Event, state map[string]patch.Value) {
	w := rewinding{r, from, slices.Clone(r.nodes), map[*applied]bool{}}
	for _, a := range slices.Backward(r.applied) {
		if w.stands(a) && w.age(a) == mixed && !(a.cuts && a.drops) {
			w.takeBack(a)
		}
	}
	kept, dropped := map[*node]bool{}, map[*node]bool{}
	for _, a := range slices.Backward(r.applied) {
		if w.reverted[a] && a.cuts {
			w.cover(a, kept, dropped)
		}
	}
	state = net(r.initial, nil)
	for _, n := range w.nodes {
		switch by := r.maker(n); {
		case dropped[n], by == nil && r.seqOf(n) >= from, by != nil && !n.ofRevert && w.age(by) == young:
			continue
		case n.event != nil && !kept[n]:
			visible = append(visible, n.event)
		}
		state = net(state, []*node{n})
	}
	return visible, state
}

// rewinding is a rewind under way.
type rewinding struct {
	*Reference
	from     uint64
	nodes    []*node
	reverted map[*applied]bool
}

// What a patch put in is old if all raw events that it stands for are, young if none is.
type age int

const (
	old age = iota
	young
	mixed
)

func (w *rewinding) age(a *applied) age {
	var hasOld, hasYoung bool
	for _, seq := range w.raw(a) {
		hasOld = hasOld || seq < w.from
		hasYoung = hasYoung || seq >= w.from
	}
	switch {
	case hasOld && hasYoung:
		return mixed
	case hasYoung, !hasOld && a.seq >= w.from:
		return young
	}
	return old
}

// raw returns the seqs of the raw events that the patch took out, at any depth. What a
// revert brought back stands for itself, and so do events that a patch put in without
// taking any out, at that patch's seq.
func (w *rewinding) raw(a *applied) []uint64 {
	var seqs []uint64
	for _, n := range a.out {
		if by := w.maker(n); by == nil {
			seqs = append(seqs, w.seqOf(n))
		} else if !n.ofRevert {
			inner := w.raw(by)
			if len(inner) == 0 && n.event != nil {
				inner = []uint64{by.seq}
			}
			seqs = append(seqs, inner...)
		}
	}
	return seqs
}

// maker returns the patch that made a node, or nil if a record did.
func (r *Reference) maker(n *node) *applied {
	for _, a := range r.applied {
		if slices.Contains(a.in[:a.made], n) {
			return a
		}
	}
	return nil
}

// seqOf returns the seq of the record that made a node.
func (r *Reference) seqOf(n *node) uint64 {
	for _, rec := range r.log {
		if rec.Event == n.event {
			return rec.Seq
		}
	}
	return 0
}

// stands reports whether something that the patch made is there. A revert makes nothing.
func (w *rewinding) stands(a *applied) bool {
	return !a.in[0].ofRevert && overlap(a.in[:a.made], w.nodes)
}

// takeBack puts what the patch took out in the place of what it put in; what is in the
// way is taken back first.
func (w *rewinding) takeBack(a *applied) {
	for {
		now := *w.Reference
		now.nodes = w.nodes
		from, to, missing, between := now.stretch(a)
		if len(missing)+len(between) == 0 {
			w.nodes = slices.Concat(w.nodes[:from], a.out, w.nodes[to+1:])
			w.reverted[a] = true
			return
		}
		w.takeBack(now.blocking(missing, between))
	}
}

// cover hides the old nodes again that a cut had taken out, and what patches had taken
// out all of whose nodes it had taken out.
func (w *rewinding) cover(cut *applied, kept, dropped map[*node]bool) {
	hidden := slices.Clone(cut.out)
	for again := true; again; {
		again = false
		for _, a := range w.applied {
			if !w.reverted[a] || !overlap(a.in, hidden) || slices.ContainsFunc(a.in, func(n *node) bool { return !slices.Contains(hidden, n) }) {
				continue
			}
			for _, n := range a.out {
				if !slices.Contains(hidden, n) {
					hidden, again = append(hidden, n), true
				}
			}
		}
	}
	for _, n := range hidden {
		if n.ofRevert {
			continue
		}
		if cut.drops {
			dropped[n] = true
		} else {
			kept[n] = true
		}
	}
}
