package fold

import (
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
// side by side are one: only a revert tells them apart, and then the log does.
type NodeRef struct {
	Seq     uint64 // of the record that put it in; 0 for a marker
	Index   int    // among the events that the record put in
	Summary bool   // put in by a summarise
	Pinned  bool   // it is pinned
	Pos     uint64 // what the sequence is sorted by; a regular event's is its seq
	Carries []patch.Change
}

// Skeleton returns the view's skeleton. It takes time in the number of visible events,
// and computes what kept cuts carry.
func (v View) Skeleton() Skeleton {
	s := Skeleton{
		Creation: v.creation, Initial: v.initial, Seq: v.seq, PatchSeq: v.patchSeq,
		Invocation: v.invocation, Unknown: v.unknown, Skips: v.skipped.count(),
	}
	s.Nodes = make([]NodeRef, 0, v.Len())
	v.root.walk(0, v.root.len(), func(n *node) bool {
		ref := NodeRef{Pos: n.pos(), Carries: n.carries()}
		if n.event != nil {
			ref.Seq, ref.Index, ref.Summary, ref.Pinned = n.seq, int(n.index), n.summary, v.pins.has(n.id())
		} else if last := len(s.Nodes) - 1; last >= 0 && s.Nodes[last].Seq == 0 {
			s.Nodes[last].Pos = ref.Pos
			s.Nodes[last].Carries = delta(s.Nodes[last].Carries).then(ref.Carries)
			return true
		}
		s.Nodes = append(s.Nodes, ref)
		return true
	})
	return s
}

// Needs returns the seqs of the records that [Skeleton.Restore] needs, ascending: those
// that hold the visible events.
func (s Skeleton) Needs() []uint64 {
	var seqs []uint64
	for _, ref := range s.Nodes {
		if ref.Seq > 0 {
			seqs = append(seqs, ref.Seq)
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// Restore gives the view that has this skeleton, from the records that [Skeleton.Needs]
// names. What earlier patches did is no part of a skeleton: see [NeedError]. The error
// matches [patch.ErrCorrupt] if there cannot be such a skeleton of these records.
func (s Skeleton) Restore(records []patch.Record) (View, error) {
	if s.PatchSeq > s.Seq || s.Skips < 0 || s.Skips > 0 && s.PatchSeq == 0 {
		return View{}, fmt.Errorf("%w: a skeleton at seq %d with patch seq %d and %d skips", patch.ErrCorrupt, s.Seq, s.PatchSeq, s.Skips)
	}
	v := View{
		creation: s.Creation, initial: s.Initial, seq: s.Seq, patchSeq: s.PatchSeq,
		invocation: s.Invocation, unknown: s.Unknown, restored: s.PatchSeq > 0,
	}
	if s.Skips > 0 {
		v.skipped = &skipList{len: s.Skips}
	}
	nodes, err := s.nodes(v.With(records).hand)
	if err != nil {
		return View{}, err
	}
	v.root = v.root.splice(nil, 0, 0, nodes)
	for i, ref := range s.Nodes {
		if ref.Pinned {
			if v.pins == nil {
				v.pins = pins{}
			}
			v.pins[nodes[i].id()] = struct{}{}
		}
	}
	return v.fresh(), nil
}

// nodes returns the skeleton's nodes, with their events, in the order of the sequence.
func (s Skeleton) nodes(at hand) ([]node, error) {
	pos := uint64(0)
	nodes := make([]node, len(s.Nodes))
	for i, ref := range s.Nodes {
		raw := ref.Seq > 0 && ref.Pos == ref.Seq && ref.Index == 0 && !ref.Summary && !ref.Pinned && len(ref.Carries) == 0
		if ref.Seq > s.Seq || ref.Index < 0 || ref.Index > math.MaxInt32 || ref.Pos > s.Seq || ref.Pos < pos || !raw && s.PatchSeq == 0 {
			return nil, fmt.Errorf("%w: a skeleton at seq %d with a node of record %d, index %d, place %d", patch.ErrCorrupt, s.Seq, ref.Seq, ref.Index, ref.Pos)
		}
		pos = ref.Pos
		n := node{seq: ref.Seq, index: int32(ref.Index), summary: ref.Summary}
		if ref.Pos != ref.Seq || ref.Seq == 0 {
			n.cut = &cut{seq: ref.Seq, pos: ref.Pos}
			n.cut.carries(ref.Carries)
		}
		if ref.Seq > 0 {
			var err error
			if n.event, err = at.event(n.seq, n.index); err != nil {
				return nil, err
			}
			if n.event == nil {
				return nil, fmt.Errorf("%w: record %d is missing", patch.ErrCorrupt, n.seq)
			}
		}
		nodes[i] = n
	}
	return nodes, nil
}
