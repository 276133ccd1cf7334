package fold

import (
	"cmp"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Places says of each event of a view's log what has become of it: whether it is in sight, or
// else which patch hides it. It is immutable, as the view is.
type Places struct {
	view   View
	cuts   map[uint64]*cut   // by seq
	groups map[string][]*cut // those that put in events, by group
	hidden []stretch
}

// stretch is events that consecutive records brought, or a node that a patch made, which
// another patch took out.
type stretch struct {
	first nodeID
	last  uint64 // seq
	by    *cut
}

// Place is what has become of an event.
type Place struct {
	Index int // among the visible events, or -1

	// Of a hidden event, the patch that took it out of sight. What this one put in may be
	// hidden in turn, so that more than one must be taken back before the event shows.
	HiddenBy    string
	HiddenBySeq uint64
}

// Visible reports whether the event is in sight.
func (p Place) Visible() bool { return p.Index >= 0 }

// Places returns the places of all events in the view's log. It takes time linear in the number
// of patches, and of what they took out. The error is as that of [View.Skipped].
func (v View) Places() (*Places, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	p := &Places{view: v, cuts: map[uint64]*cut{}, groups: map[string][]*cut{}}
	undone := v.patches.undone(0)
	for at := v.patches; at != nil; at = at.older {
		c := at.cut
		p.cuts[c.seq] = c
		if c.puts && c.group != "" {
			p.groups[c.group] = append(p.groups[c.group], c)
		}
		// What the revert of a revert took out is hidden by the patch that stands again.
		if !undone[c] && !(c.revert && c.target.revert) {
			p.hide(c)
		}
	}
	slices.SortFunc(p.hidden, func(a, b stretch) int { return a.first.compare(b.first) })
	return p, nil
}

func (id nodeID) compare(other nodeID) int {
	return cmp.Or(cmp.Compare(id.seq, other.seq), cmp.Compare(id.index, other.index))
}

// hide notes what a patch took out.
func (p *Places) hide(c *cut) {
	for _, n := range c.out.nodes {
		p.hidden = append(p.hidden, stretch{n.id(), n.seq, c})
	}
	for _, piece := range c.out.pieces {
		p.hidden = append(p.hidden, stretch{piece.id(), piece.seq + uint64(max(piece.events, 1)) - 1, c})
	}
}

// Of returns the place of an event, by the seq of its record and its index among those that the
// record brought. ok is false if the view's log has no such event, or if the patch that was to
// put it in was skipped.
func (p *Places) Of(seq uint64, index int) (place Place, ok bool) {
	id := nodeID{seq, int32(index)}
	if c := p.cuts[seq]; c != nil && !c.puts {
		return Place{Index: -1}, false
	}
	if rank := p.rank(id); rank >= 0 {
		return Place{Index: p.view.root.visibleBefore(rank)}, true
	}
	if c := p.hider(id); c != nil {
		return Place{Index: -1, HiddenBy: c.id, HiddenBySeq: c.seq}, true
	}
	return Place{Index: -1}, false
}

// hider returns the patch that took out a node, or nil.
func (p *Places) hider(id nodeID) *cut {
	i, found := slices.BinarySearchFunc(p.hidden, id, func(s stretch, id nodeID) int { return s.first.compare(id) })
	if found {
		return p.hidden[i].by
	}
	if i == 0 {
		return nil
	}
	if s := p.hidden[i-1]; s.first.index == 0 && id.index == 0 && id.seq <= s.last {
		return s.by
	}
	return nil
}

// rank returns a node's place among all that stand, or -1.
func (p *Places) rank(id nodeID) int {
	pos := id.seq
	if c := p.cuts[id.seq]; c != nil {
		pos = c.pos
	}
	root := p.view.root
	first := root.seek(pos)
	// What a patch has put in mostly stands together still.
	if at := first + int(id.index); at < root.len() && root.byRank(at).id() == id {
		return at
	}
	rank, found := first, -1
	root.walk(rank, root.len(), func(n *node) bool {
		if n.id() == id {
			found = rank
		}
		rank++
		return n.pos() == pos && found < 0
	})
	return found
}

// With returns the places with records of the log at hand, for [Places.Told].
func (p *Places) With(records []patch.Record) *Places {
	with := *p
	with.view = p.view.With(records)
	return &with
}

// Told reports whether an event of the view's log, of a branch and an isolation scope, is in
// sight, or is told of: whether what hides it is a summary that stands for it, or the clearing or
// shortening of its results, and that is in sight or told of in turn. What was taken out in other
// ways, by cuts, splices and rewinds, is not. So what [View.History] shows is told of, and besides it
// only summaries. Of two events that one patch hides, of the same branch and scope, both are told of
// or none is.
//
// The error is a *[NeedError] if patches of the log must be handed in; ask what [Places.With]
// returns then.
func (p *Places) Told(seq uint64, index int, branch, scope string) (bool, error) {
	q := question{Places: p, answers: map[nodeID]bool{}}
	told, err := q.told(nodeID{seq, int32(index)}, lane{patch.BranchWithoutRuns(branch), scope})
	if q.lacks {
		slices.Sort(q.patches)
		return false, &NeedError{Seqs: slices.Compact(q.patches)}
	}
	return told, err
}

// question is whether an event is told of.
type question struct {
	*Places
	answers map[nodeID]bool // so far; patches of a group may hide each other's events
	patches []uint64        // that were looked into
	lacks   bool            // one of them is not at hand
}

// told is Told of a node.
func (q *question) told(id nodeID, of lane) (told bool, err error) {
	if q.rank(id) >= 0 {
		return true, nil
	}
	c := q.hider(id)
	told, asked := q.answers[id]
	if c == nil || asked {
		return told, nil
	}
	q.answers[id] = false
	defer func() { q.answers[id] = told }()
	if c.puts {
		return q.tells(c, of, true)
	}
	if !c.keep {
		return false, nil
	}
	// What a patch of a group took out without a summary in its place belongs to the group's.
	for _, t := range q.groups[c.group] {
		if told, err := q.tells(t, of, false); told || err != nil {
			return told, err
		}
	}
	if c.wordless {
		return q.told(nodeID{c.seq, 0}, noLane)
	}
	return false, nil
}

// tells reports whether one of the events that a patch put in tells of an event of a lane, and is
// in sight or told of itself. own says that the patch hides that event.
func (q *question) tells(c *cut, of lane, own bool) (bool, error) {
	if !c.tookOutEvents() {
		return false, nil
	}
	q.patches = append(q.patches, c.seq)
	for i := range c.made {
		by, err := q.view.hand.event(c.seq, i)
		if err != nil {
			return false, err
		}
		if by == nil { // what comes behind it is looked for all the same, so that all is asked for at once
			q.lacks = true
			if _, err := q.told(nodeID{c.seq, i}, noLane); err != nil {
				return false, err
			}
			continue
		}
		summary := (!c.splice || by.IsSummary()) && c.summaryOfLane(of) == i
		if !summary && !(own && saysCleared(by)) {
			continue
		}
		if told, err := q.told(nodeID{c.seq, i}, laneOf(by)); told || err != nil {
			return told, err
		}
	}
	return false, nil
}
