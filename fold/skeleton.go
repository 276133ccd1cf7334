package fold

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Meaning is the version of what records mean to the fold. It changes when a log can fold
// to another view than before, as when a patch type becomes known. A snapshot made
// under another meaning is not to be trusted.
const Meaning = 3

// Skeleton is a view without the bodies of its events: what a snapshot keeps. Records
// hold the bodies; a skeleton says which. It shares nothing with its view that anyone
// may change.
type Skeleton struct {
	Creation   string
	Initial    []patch.Change // the initial state, in key order
	Seq        uint64
	PatchSeq   uint64
	Invocation string    // the newest invocation that a regular event named
	Unknown    bool      // a patch of unknown type was skipped
	Skips      int       // how many patches were skipped
	Nodes      []NodeRef // in their order
}

// NodeRef says where an element of the fold's sequence comes from. Markers that stand
// side by side are one: only a revert tells them apart, and then the log does. Regular
// events of consecutive records, which carry nothing, are one too.
type NodeRef struct {
	Seq     uint64 // of the record that put it in; 0 for a marker
	More    uint64 // how many regular events follow it, each of the next record
	Index   int    // among the events that the record put in
	Summary bool   // put in by a summarise
	Pinned  bool   // it is pinned
	Pos     uint64 // what the sequence is sorted by; a regular event's is its seq
	Carries []patch.Change
}

// plain reports whether it may be a regular event that carries nothing and is not pinned.
func (n NodeRef) plain() bool {
	return n.Seq > 0 && n.Pos == n.Seq && n.Index == 0 && !n.Summary && !n.Pinned && len(n.Carries) == 0
}

// Skeleton returns the view's skeleton. It takes time in the number of visible events,
// and computes what kept cuts carry.
func (v View) Skeleton() Skeleton {
	s := Skeleton{
		Creation: v.creation, Initial: v.initial, Seq: v.seq, PatchSeq: v.patchSeq,
		Invocation: v.invocation, Unknown: v.unknown, Skips: v.skipped.count(),
	}
	v.root.walk(0, v.root.len(), func(n *node) bool {
		ref := NodeRef{Pos: n.pos(), Carries: n.carries()}
		if n.event != nil {
			ref.Seq, ref.Index, ref.Summary, ref.Pinned = n.seq, int(n.index), n.summary, v.pins.has(n.id())
		}
		if len(s.Nodes) == 0 || !s.Nodes[len(s.Nodes)-1].takes(ref) {
			s.Nodes = append(s.Nodes, ref)
		}
		return true
	})
	return s
}

// takes makes one of n and the node behind it, if that may be, and reports whether.
func (n *NodeRef) takes(next NodeRef) bool {
	switch {
	case n.Seq == 0 && next.Seq == 0:
		n.Pos = next.Pos
		n.Carries = delta(n.Carries).then(next.Carries)
	case n.plain() && next.plain() && next.Seq == n.Seq+n.More+1:
		n.More++
	default:
		return false
	}
	return true
}

// Stretch is records that follow each other.
type Stretch struct{ First, Last uint64 } // seqs

// Needs returns which records [Skeleton.Restore] needs, in order: those that hold the
// visible events. There are none if there cannot be such a skeleton. What a skeleton says
// may be far more than there is: whoever reads the records stops at the first that is
// missing.
func (s Skeleton) Needs() []Stretch {
	if s.validate() != nil {
		return nil
	}
	var needs []Stretch
	for _, ref := range s.Nodes {
		if ref.Seq > 0 {
			needs = append(needs, Stretch{ref.Seq, ref.Seq + ref.More})
		}
	}
	slices.SortFunc(needs, func(a, b Stretch) int { return cmp.Compare(a.First, b.First) })
	joined := needs[:0]
	for _, next := range needs {
		if last := len(joined) - 1; last >= 0 && next.First-1 <= joined[last].Last {
			joined[last].Last = max(joined[last].Last, next.Last)
			continue
		}
		joined = append(joined, next)
	}
	return joined
}

// validate reports whether there can be such a skeleton. Its nodes then stand for no more
// events than the log has.
func (s Skeleton) validate() error {
	if s.PatchSeq > s.Seq || s.Skips < 0 || uint64(s.Skips) > s.Seq || s.Skips > 0 && s.PatchSeq == 0 {
		return fmt.Errorf("%w: a skeleton at seq %d with patch seq %d and %d skips", patch.ErrCorrupt, s.Seq, s.PatchSeq, s.Skips)
	}
	pos := uint64(0)
	for _, ref := range s.Nodes {
		if !s.has(ref) || ref.Pos < pos || !ref.plain() && s.PatchSeq == 0 {
			return fmt.Errorf("%w: a skeleton at seq %d with a node of record %d and %d more, index %d, place %d", patch.ErrCorrupt, s.Seq, ref.Seq, ref.More, ref.Index, ref.Pos)
		}
		pos = ref.Pos + ref.More
	}
	return nil
}

// Restore gives the view that has this skeleton, from the records that [Skeleton.Needs]
// names. What earlier patches did is no part of a skeleton: see [NeedError]. The error
// matches [patch.ErrCorrupt] if there cannot be such a skeleton of these records.
func (s Skeleton) Restore(records []patch.Record) (View, error) {
	if err := s.validate(); err != nil {
		return View{}, err
	}
	v := View{
		creation: s.Creation, initial: s.Initial, seq: s.Seq, patchSeq: s.PatchSeq,
		invocation: s.Invocation, unknown: s.Unknown, restored: s.PatchSeq > 0,
	}
	if s.Skips > 0 {
		v.skipped = &skipList{len: s.Skips}
	}
	at := v.With(records).hand
	f := folding{own: &owner{}}
	for _, ref := range s.Nodes {
		if len(ref.Carries) > 0 {
			v.held += cutBytes + patch.ChangesFootprint(ref.Carries)
		}
		for i := range ref.More + 1 {
			n, err := ref.node(i, at)
			if err != nil {
				return View{}, err
			}
			f.pending = append(f.pending, n)
			if ref.Pinned {
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

// has reports whether a node of the view that has the skeleton can be such a one.
func (s Skeleton) has(ref NodeRef) bool {
	return ref.Seq <= s.Seq && ref.Pos <= s.Seq && ref.Index >= 0 && ref.Index <= math.MaxInt32 &&
		(ref.More == 0 || ref.plain() && ref.More <= s.Seq-ref.Seq) && !(ref.Pinned && ref.Seq == 0)
}

// node returns one of the nodes that n stands for, with its event.
func (n NodeRef) node(i uint64, at hand) (node, error) {
	out := node{seq: n.Seq + i, index: int32(n.Index), summary: n.Summary}
	if n.Pos != n.Seq || n.Seq == 0 {
		out.cut = &cut{seq: n.Seq, pos: n.Pos}
		out.cut.carries(n.Carries)
	}
	if n.Seq == 0 {
		return out, nil
	}
	var err error
	if out.event, err = at.event(out.seq, out.index); err == nil && out.event == nil {
		err = fmt.Errorf("%w: record %d is missing", patch.ErrCorrupt, out.seq)
	}
	return out, err
}
