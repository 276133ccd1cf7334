package fold

import (
	"context"
	"fmt"
	"math"

	"github.com/patchlog-dev/patchlog/patch"
)

// Meaning is the version of what records mean to the fold. It changes when a log can fold
// to another view than before, as when a patch type becomes known. A snapshot made
// under another meaning is not to be trusted.
const Meaning = 2

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
	Pos     uint64 // what the sequence is sorted by; a regular event's is its seq
	Carries []patch.Change
}

// plain reports whether it may be a regular event that carries nothing.
func (n NodeRef) plain() bool {
	return n.Seq > 0 && n.Pos == n.Seq && n.Index == 0 && !n.Summary && len(n.Carries) == 0
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
			ref.Seq, ref.Index, ref.Summary = n.seq, int(n.index), n.summary
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

// Restore gives the view that has this skeleton. Its visible events are read from the
// source at once, and no others. What else the view is made of, which patches took out
// what and which were skipped, is folded from the source's records if it is asked for: by
// a revert, or by [View.Skipped]. The error matches [ErrSource] if the source fails, and
// [patch.ErrCorrupt] if there cannot be such a skeleton of what it reads.
func (s Skeleton) Restore(ctx context.Context, source Source) (View, error) {
	if s.PatchSeq > s.Seq || s.Skips < 0 || uint64(s.Skips) > s.Seq || s.Skips > 0 && s.PatchSeq == 0 {
		return View{}, fmt.Errorf("%w: a skeleton at seq %d with patch seq %d and %d skips", patch.ErrCorrupt, s.Seq, s.PatchSeq, s.Skips)
	}
	v := View{
		creation: s.Creation, initial: s.Initial, seq: s.Seq, patchSeq: s.PatchSeq,
		invocation: s.Invocation, unknown: s.Unknown, released: s.PatchSeq,
	}
	if s.PatchSeq > 0 {
		empty := View{creation: s.Creation, initial: s.Initial}
		v.past = &past{empty: empty.fresh(), seq: s.Seq, source: source}
	}
	if s.Skips > 0 {
		v.skipped = &skipList{len: s.Skips, load: v.past.skipped}
	}
	for _, ref := range s.Nodes {
		if len(ref.Carries) > 0 {
			v.held += cutBytes + patch.ChangesFootprint(ref.Carries)
		}
	}
	var err error
	v.root, err = s.sequence(ctx, source, v.past)
	if err != nil {
		return View{}, err
	}
	return v.fresh(), nil
}

// sequence returns the skeleton's nodes, with their events. What a skeleton says may be
// far more than there is: stretches of events are read a page at a time, so that the first
// record that is missing ends it.
func (s Skeleton) sequence(ctx context.Context, source Source, p *past) (*tree, error) {
	var seqs []uint64
	pos := uint64(0)
	for _, ref := range s.Nodes {
		if !s.has(ref) || ref.Pos < pos || !ref.plain() && p == nil {
			return nil, fmt.Errorf("%w: a skeleton at seq %d with a node of record %d and %d more, index %d, place %d", patch.ErrCorrupt, s.Seq, ref.Seq, ref.More, ref.Index, ref.Pos)
		}
		pos = ref.Pos + ref.More
		if ref.Seq > 0 && !ref.plain() {
			seqs = append(seqs, ref.Seq)
		}
	}
	events, err := loadEvents(ctx, source, seqs)
	if err != nil {
		return nil, err
	}
	f := folding{own: &owner{}}
	for i, refs := 0, s.Nodes; i < len(refs); {
		if !refs[i].plain() {
			n, err := refs[i].node(events, p)
			if err != nil {
				return nil, err
			}
			f.pending = append(f.pending, n)
			i++
			continue
		}
		n, err := f.plainEvents(ctx, source, refs[i:])
		if err != nil {
			return nil, err
		}
		i += n
	}
	f.flush()
	return f.view.root, nil
}

// has reports whether a node of the view that has the skeleton can be such a one.
func (s Skeleton) has(ref NodeRef) bool {
	return ref.Seq <= s.Seq && ref.Pos <= s.Seq && ref.Index >= 0 && ref.Index <= math.MaxInt32 &&
		(ref.More == 0 || ref.plain() && ref.More <= s.Seq-ref.Seq)
}

// plainEvents adds the events of the plain nodes that refs begins with, and returns how
// many these are.
func (f *folding) plainEvents(ctx context.Context, source Source, refs []NodeRef) (n int, err error) {
	var seqs []uint64
	read := func() error {
		events, err := loadEvents(ctx, source, seqs)
		if err != nil {
			return err
		}
		for _, seq := range seqs {
			e, err := events.at(seq, 0)
			if err != nil {
				return err
			}
			f.pending = append(f.pending, node{event: e, seq: seq})
		}
		f.flush()
		seqs = nil
		return nil
	}
	for ; n < len(refs) && refs[n].plain(); n++ {
		for more := range refs[n].More + 1 {
			if seqs = append(seqs, refs[n].Seq+more); len(seqs) == pastPage {
				if err := read(); err != nil {
					return 0, err
				}
			}
		}
	}
	return n, read()
}

// node returns a node that is not plain. The records that were read have its event.
func (n NodeRef) node(events loaded, p *past) (node, error) {
	out := node{seq: n.Seq, index: int32(n.Index), summary: n.Summary}
	if n.Pos != n.Seq || n.Seq == 0 {
		out.cut = &cut{seq: n.Seq, pos: n.Pos}
		out.cut.carries(n.Carries)
	}
	if n.Seq == 0 {
		out.cut.past, out.cut.gap = p, p.gaps
		p.gaps++
		return out, nil
	}
	var err error
	out.event, err = events.at(out.seq, out.index)
	return out, err
}
