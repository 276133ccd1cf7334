package fold

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Saved is what [View.AppendBinary] keeps of a view: all but the bodies of its events and
// the initial state. Records hold the bodies; a Saved says which. It is immutable.
type Saved struct {
	creation   string
	seq        uint64
	patchSeq   uint64
	invocation string    // the newest invocation that a regular event named
	unknown    bool      // a patch of unknown type was skipped
	skips      int       // how many patches were skipped
	nodes      []nodeRef // in their order
}

// nodeRef says where an element of the fold's sequence comes from. Markers that stand
// side by side are one: only a revert tells them apart, and then the log does. Regular
// events of consecutive records, which carry nothing, are one too.
type nodeRef struct {
	seq     uint64 // of the record that put it in; 0 for a marker
	more    uint64 // how many regular events follow it, each of the next record
	index   int32  // among the events that the record put in
	summary bool   // put in by a summarise
	pinned  bool
	pos     uint64 // what the sequence is sorted by; a regular event's is its seq
	carries delta
}

// plain reports whether it may be a regular event that carries nothing and is not pinned,
// or several.
func (n *nodeRef) plain() bool {
	return n.seq > 0 && n.pos == n.seq && n.index == 0 && !n.summary && !n.pinned && len(n.carries) == 0
}

// saved takes time in the number of visible events, and computes what kept cuts carry.
func (v View) saved() Saved {
	s := Saved{
		creation: v.creation, seq: v.seq, patchSeq: v.patchSeq,
		invocation: v.invocation, unknown: v.unknown, skips: v.skipped.count(),
	}
	for n := range v.root.all {
		ref := nodeRef{pos: n.pos(), carries: n.carries()}
		if n.event != nil {
			ref.seq, ref.index, ref.summary, ref.pinned = n.seq, n.index, n.summary, v.pins.has(n.id())
		}
		if len(s.nodes) == 0 || !s.nodes[len(s.nodes)-1].takes(ref) {
			s.nodes = append(s.nodes, ref)
		}
	}
	return s
}

// takes makes one of n and the node behind it, if that may be, and reports whether.
func (n *nodeRef) takes(next nodeRef) bool {
	switch {
	case n.seq == 0 && next.seq == 0:
		n.pos = next.pos
		n.carries = n.carries.then(next.carries)
	case n.plain() && next.plain() && next.seq == n.seq+n.more+1:
		n.more++
	default:
		return false
	}
	return true
}

// Creation returns the id of the creation of the view's session.
func (s Saved) Creation() string { return s.creation }

// Seq returns the seq of the record that the view stands at.
func (s Saved) Seq() uint64 { return s.seq }

// Needs yields the seqs of the records that [Saved.Restore] needs, ascending: those
// that hold the visible events. A Saved may claim far more than there is: whoever reads
// the records stops at the first that is missing.
func (s Saved) Needs() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		refs := slices.DeleteFunc(slices.Clone(s.nodes), func(n nodeRef) bool { return n.seq == 0 })
		slices.SortFunc(refs, func(a, b nodeRef) int { return cmp.Compare(a.seq, b.seq) })
		last := uint64(0) // that was yielded
		for _, ref := range refs {
			for i := range ref.more + 1 {
				if seq := ref.seq + i; seq > last {
					if last = seq; !yield(seq) {
						return
					}
				}
			}
		}
	}
}

// Restore gives the view that was saved, from the records that [Saved.Needs] names.
// Creation and initial state are those of empty, the session's view without records
// ([New]), and the view is lean if that one is. What earlier patches did is not saved: see
// [NeedError]. The error matches [patch.ErrCorrupt] if these records do not hold the events.
func (s Saved) Restore(empty View, records []patch.Record) (View, error) {
	v := empty
	v.seq, v.patchSeq, v.invocation, v.unknown = s.seq, s.patchSeq, s.invocation, s.unknown
	v.restored = s.patchSeq > 0
	if s.skips > 0 {
		v.skipped = &skipList{len: s.skips}
	}
	at := v.With(records).hand
	f := folding{own: &owner{}}
	for _, ref := range s.nodes {
		if len(ref.carries) > 0 {
			v.held += cutBytes + patch.ChangesFootprint(ref.carries)
		}
		for i := range ref.more + 1 {
			n, err := ref.node(i, at)
			if err != nil {
				return View{}, err
			}
			f.pending = append(f.pending, n)
			if ref.pinned {
				if v.pins == nil {
					v.pins = pins{}
				}
				v.pins[n.id()] = struct{}{}
			}
		}
	}
	f.flush()
	v.root = f.view.root
	return v.fresh(), nil
}

// node returns one of the nodes that n stands for, with its event.
func (n nodeRef) node(i uint64, at hand) (node, error) {
	out := node{seq: n.seq + i, index: n.index, summary: n.summary}
	if n.pos != n.seq || n.seq == 0 {
		out.cut = &cut{seq: n.seq, pos: n.pos, keep: len(n.carries) > 0}
		out.cut.carry.Store(&n.carries)
	}
	if n.seq == 0 {
		return out, nil
	}
	var err error
	if out.event, err = at.event(out.seq, out.index); err == nil && out.event == nil {
		err = fmt.Errorf("%w: record %d is missing", patch.ErrCorrupt, out.seq)
	}
	return out, err
}
