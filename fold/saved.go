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
	patches    []byte    // what patches did, as [writer.patches] has it
}

// nodeRef says where an element of the fold's sequence comes from. Regular events of
// consecutive records, which carry nothing, are one.
type nodeRef struct {
	seq     uint64 // of the record that put it in
	more    uint64 // how many regular events follow it, each of the next record
	index   int32  // among the nodes that the record put in
	marker  bool
	summary bool // put in by a summarise
	pinned  bool
	keep    bool   // the patch that made it kept the state
	revert  bool   // a revert made it
	pos     uint64 // what the sequence is sorted by; a regular event's is its seq
	carries delta
}

// plain reports whether it may be a regular event that carries nothing and is not pinned,
// or several.
func (n *nodeRef) plain() bool {
	return n.pos == n.seq && n.index == 0 && !n.marker && !n.summary && !n.pinned && len(n.carries) == 0
}

// nodeRefs takes time in the number of nodes, and computes what kept cuts carry.
func (v View) nodeRefs() (refs []nodeRef) {
	for n := range v.root.all {
		ref := nodeRef{
			seq: n.seq, index: n.index, marker: n.event == nil, summary: n.summary,
			pinned: n.event != nil && v.pins.has(n.id()), pos: n.pos(), carries: n.carries(),
		}
		if n.cut != nil {
			ref.keep, ref.revert = n.cut.keep, n.cut.revert
		}
		if last := len(refs) - 1; last >= 0 && refs[last].plain() && ref.plain() && ref.seq == refs[last].seq+refs[last].more+1 {
			refs[last].more++
			continue
		}
		refs = append(refs, ref)
	}
	return refs
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
		refs := slices.DeleteFunc(slices.Clone(s.nodes), func(n nodeRef) bool { return n.marker })
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
// ([New]), and the view is lean if that one is. The error matches [patch.ErrCorrupt] if these
// records do not hold the events.
func (s Saved) Restore(empty View, records []patch.Record) (View, error) {
	v := empty
	v.seq, v.patchSeq, v.invocation, v.unknown = s.seq, s.patchSeq, s.invocation, s.unknown
	v.saved = &savedPatches{form: s.patches, seq: s.seq, cuts: map[uint64]*cut{}}
	v.held = len(s.patches)
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
			n, err := v.saved.node(ref, i, at)
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

// node returns one of the nodes that ref stands for, with its event. Of the patch that made it
// is known what the node shows; the rest comes with [savedPatches.load].
func (p *savedPatches) node(ref nodeRef, i uint64, at hand) (node, error) {
	out := node{seq: ref.seq + i, index: ref.index, summary: ref.summary}
	if ref.pos != ref.seq {
		c := p.cuts[ref.seq]
		if c == nil {
			c = &cut{seq: ref.seq, pos: ref.pos, keep: ref.keep, revert: ref.revert}
			p.cuts[ref.seq] = c
		}
		if ref.index == 0 && ref.keep {
			c.carries = ref.carries
		}
		out.cut = c
	}
	if ref.marker {
		return out, nil
	}
	var err error
	if out.event, err = at.event(out.seq, out.index); err == nil && out.event == nil {
		err = fmt.Errorf("%w: record %d is missing", patch.ErrCorrupt, out.seq)
	}
	return out, err
}
