package fold

import (
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Meaning is the version of what records mean to the fold. It changes when a log can fold
// to another view than before, as when a patch type becomes known. A snapshot made
// under another meaning is not to be trusted.
const Meaning = 1

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
// side by side are one, since no cut ever parts them.
type NodeRef struct {
	Seq     uint64 // of the record that put it in; 0 for a marker
	Index   int    // among the events that the record put in
	Summary bool   // put in by a summarise
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
		ref := NodeRef{Carries: n.cut.net()}
		if n.event != nil {
			ref.Seq, ref.Index, ref.Summary = n.seq, int(n.index), n.summary
		} else if last := len(s.Nodes) - 1; last >= 0 && s.Nodes[last].Seq == 0 {
			s.Nodes[last].Carries = delta(s.Nodes[last].Carries).then(ref.Carries)
			return true
		}
		s.Nodes = append(s.Nodes, ref)
		return true
	})
	return s
}

// Restore gives the view that has this skeleton. event is asked for each event, in
// order; skips, if not nil, for the skipped patches once someone wants to see them. The
// first error of event is the result; one that a skeleton cannot have matches
// [patch.ErrCorrupt].
func (s Skeleton) Restore(event func(NodeRef) (*patch.Event, error), skips func() ([]patch.Skip, error)) (View, error) {
	v := View{
		creation: s.Creation, initial: s.Initial, seq: s.Seq, patchSeq: s.PatchSeq,
		invocation: s.Invocation, unknown: s.Unknown,
	}
	if s.PatchSeq > s.Seq || s.Skips < 0 {
		return View{}, fmt.Errorf("%w: a skeleton at seq %d with patch seq %d and %d skips", patch.ErrCorrupt, s.Seq, s.PatchSeq, s.Skips)
	}
	if s.Skips > 0 {
		v.skipped = &skipList{len: s.Skips, load: skips}
	}
	nodes := make([]node, len(s.Nodes))
	for i, ref := range s.Nodes {
		if len(ref.Carries) > 0 {
			nodes[i].cut = carrying(ref.Carries)
		}
		if ref.Seq == 0 {
			continue
		}
		if ref.Seq > s.Seq || ref.Index < 0 {
			return View{}, fmt.Errorf("%w: a skeleton at seq %d with an event of record %d, index %d", patch.ErrCorrupt, s.Seq, ref.Seq, ref.Index)
		}
		e, err := event(ref)
		if err != nil {
			return View{}, err
		}
		nodes[i].event, nodes[i].seq, nodes[i].index, nodes[i].summary = e, ref.Seq, int32(ref.Index), ref.Summary
	}
	v.root = v.root.splice(nil, 0, 0, nodes)
	return v.fresh(), nil
}

// carrying returns a cut of which only the net delta is known.
func carrying(changes []patch.Change) *cut {
	c := &cut{keep: true}
	net := netOf(slices.Clone(changes))
	c.carry.Store(&net)
	return c
}
