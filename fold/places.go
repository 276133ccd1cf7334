package fold

import (
	"cmp"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Places says of each event of a view's log what has become of it: whether it is in sight, or
// else which patch hides it. It is immutable, as the view is.
type Places struct {
	view   View
	cuts   map[uint64]*cut   // by seq
	groups map[string][]*cut // those that put in events, by group
	mixed  map[string]bool   // groups of which a patch put in several events that stand for others
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
	Index int // among the visible events, or -1 if the event is hidden

	// Of a hidden event, the patch that took it out of sight. What this one put in may be
	// hidden in turn, so that more than one must be taken back before the event shows.
	HiddenBy    string
	HiddenBySeq uint64
}

// Places returns the places of all events in the view's log. It takes time linear in the number
// of patches, and of what they took out. The error is as that of [View.Skipped].
func (v View) Places() (*Places, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	p := &Places{view: v, cuts: map[uint64]*cut{}, groups: map[string][]*cut{}, mixed: map[string]bool{}}
	undone := v.patches.undone(0)
	for c := v.patches; c != nil; c = c.older {
		p.cuts[c.seq] = c
		if _, ok := c.summaryOf(noLane); ok && c.group != "" {
			p.groups[c.group] = append(p.groups[c.group], c)
			p.mixed[c.group] = p.mixed[c.group] || len(c.standIns) > 1
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
		return Place{Index: p.view.nodes.visibleBefore(rank)}, true
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
	nodes := p.view.nodes
	first := nodes.seek(pos)
	// What a patch has put in mostly stands together still.
	if at := first + int(id.index); at < nodes.len() && nodes.byRank(at).id() == id {
		return at
	}
	rank, found := first, -1
	nodes.walk(rank, nodes.len(), func(n *node) bool {
		if n.id() == id {
			found = rank
		}
		rank++
		return n.pos() == pos && found < 0
	})
	return found
}

// Represented reports whether an event of the view's log, of a branch and an isolation scope, is
// visible, or is represented by a visible event: whether what hides it is a summary that stands for it, or
// the clearing or shortening of its results, and that is visible or represented in turn. What was
// taken out in other ways, by cuts, splices and rewinds, is not. So what [View.History] shows is
// represented, and besides it only summaries. Of two events that one patch hides, of the same
// branch and scope, both are represented or none is.
func (p *Places) Represented(seq uint64, index int, branch, scope string) bool {
	q := question{Places: p, answers: map[answerKey]int{}}
	return q.node(nodeID{seq, int32(index)}, lane{records.BranchWithoutRuns(branch), scope}) != nowhere
}

// Answers to a question about an event that no visible event represents.
const (
	inPlace = -1 - iota // a marker does, which stands where compaction cut without a summary
	nowhere
)

// question is by which visible events others are represented. An event that a patch took out is
// represented
//
//   - by the summary for its lane among the events that the patch put in, or by a copy of it;
//   - if the patch put none in, but kept the state, by such a summary of a patch of its group;
//   - if it is compaction's and there is none, by the patch's marker;
//
// and, where these are hidden, by what represents them.
type question struct {
	*Places
	answers map[answerKey]int
	open    []answerKey // of the outermost question so far
}

// answerKey names events that are represented alike: those of a lane that a patch hides, or that
// the patches of a group do which put none in.
type answerKey struct {
	cut   *cut
	group string
	lane
}

// node returns the index of the visible event that represents a node, or its own.
func (q *question) node(id nodeID, of lane) int {
	if rank := q.rank(id); rank >= 0 {
		if q.view.nodes.byRank(rank).event == nil {
			return inPlace
		}
		return q.view.nodes.visibleBefore(rank)
	}
	c := q.hider(id)
	if c == nil {
		return nowhere
	}
	return q.hiddenBy(c, of)
}

// hiddenBy returns the index of the visible event that represents those of a lane which a patch took out.
func (q *question) hiddenBy(c *cut, of lane) int {
	switch {
	case c.puts:
		return q.once(answerKey{cut: c, lane: of}, func() int {
			summary, _ := c.summaryOf(of)
			for _, s := range c.standIns {
				if s.copied || s == summary {
					if at := q.node(nodeID{c.seq, s.index}, s.lane); at != nowhere {
						return at
					}
				}
			}
			return nowhere
		})
	case !c.keep:
		return nowhere
	}
	at := nowhere
	if summarising := q.groups[c.group]; len(summarising) > 0 {
		at = q.once(answerKey{group: c.group, lane: of}, func() int {
			for _, by := range summarising {
				s, _ := by.summaryOf(of)
				if at := q.node(nodeID{by.seq, s.index}, s.lane); at != nowhere {
					return at
				}
			}
			return nowhere
		})
	}
	if at == nowhere && c.wordless {
		at = q.once(answerKey{cut: c, lane: noLane}, func() int { return q.node(nodeID{c.seq, 0}, noLane) })
	}
	return at
}

// once answers a question that may lead to itself.
func (q *question) once(key answerKey, find func() int) int {
	if at, ok := q.answers[key]; ok {
		return at
	}
	outermost := len(q.open) == 0
	q.open = append(q.open, key)
	q.answers[key] = nowhere
	at := find()
	if at != nowhere {
		q.answers[key] = at
	}
	if outermost {
		for _, k := range q.open { // an answer of nowhere on the way may come from a question that led to itself
			if at != nowhere && q.answers[k] == nowhere {
				delete(q.answers, k)
			}
		}
		q.open = nil
	}
	return at
}

// Hidden returns the events of the view's log that patches took out of sight and that are out of it,
// each with the seq of the patch since which it is: the newest that took it out, be it the revert of a
// revert. Events that are pinned are not among them. The error is as that of [View.Skipped].
func (v View) Hidden() (map[Ref]uint64, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	since := map[Ref]uint64{}
	for _, c := range v.patches.ascending() {
		for n := range c.tookOut {
			if n.cut == nil || n.cut.puts {
				since[n.id().ref()] = c.seq
			}
		}
	}
	for n := range v.nodes.all {
		delete(since, n.id().ref())
	}
	for id := range v.pins {
		delete(since, id.ref())
	}
	return since, nil
}

func (id nodeID) ref() Ref { return Ref{id.seq, int(id.index)} }

// Ref names an event of a log: the seq of its record, and its index among the events that
// the record brought, 0 for a regular event.
type Ref struct {
	Seq   uint64
	Index int
}

// Cut is what a patch took out of the visible log, and how many events it put in in its
// place.
type Cut struct {
	Seq   uint64 // of the patch
	Group string // of the patch, or ""
	Puts  int    // its events are those with the indices 0 to Puts-1
	Out   iter.Seq[Ref]
}

// Cuts yields what the patches of the view's log took out, in the order of the log, whether
// they stand or have been taken back. Reverts, patches that make no place of their own, and such
// as were skipped are not among them. Of what Out yields, some may be places at which a patch put no event in. The
// error is as that of [View.Skipped].
func (v View) Cuts() (iter.Seq[Cut], error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	return func(yield func(Cut) bool) {
		for _, c := range v.patches.ascending() {
			if c.revert || c.made == 0 {
				continue
			}
			out := func(yield func(Ref) bool) {
				for n := range c.tookOut {
					if !yield(Ref{n.seq, int(n.index)}) {
						return
					}
				}
			}
			puts := 0
			if c.puts {
				puts = int(c.made)
			}
			if !yield(Cut{c.seq, c.group, puts, out}) {
				return
			}
		}
	}, nil
}

// History returns what people should see of the session: the visible log, with the events
// that a summary stands for in the place of each summary, at any depth, and each event of
// which compaction has cleared results as it was before. What was taken out
// in other ways, by cuts, splices and rewinds, stays out. Summaries that took out nothing,
// as those of other programs, are there as they are. The entries are in the order of the log. The Index of each is that of the
// visible event that represents it, which is itself or a summary: one summary may represent all that
// another one stands for. It is -1 of what compaction took out without any summary.
//
// Of several summaries that one patch put in, each stands for the events of its branch and
// isolation scope. So if one of them is cut, what it stood for is not shown. What a patch of a
// group took out without a summary in its place, and kept the state of, belongs to the
// summaries of the group. What compaction took out without any
// summary, since it says nothing, is shown where it stood.
//
// The error is a *[NeedError] if the view must be given records of its log, and then perhaps
// others ([View.With]). The slice is the caller's own. History takes time linear in what it returns,
// and in the number of patches.
func (v View) History() ([]Entry, error) {
	shown, err := v.history()
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(shown))
	for i := range shown {
		entries[i] = v.entry(shown[i].of, &shown[i].node)
	}
	return entries, nil
}

// shown is a node of a history, and the index of the visible event that represents it.
type shown struct {
	node
	of int
}

// history returns what the history shows: of all nodes, in the order that they have with all that patches
// took out put back, the events that are visible or represented, without those that stand in for others.
func (v View) history() ([]shown, error) {
	p, err := v.Places()
	if err != nil {
		return nil, err
	}
	h := history{question: question{Places: p, answers: map[answerKey]int{}}}
	index := 0
	for n := range v.nodes.all {
		h.putBack(n)
		if n.event == nil {
			continue
		}
		if !n.isStandIn() {
			h.shown = append(h.shown, shown{*n, index})
		}
		index++
	}
	if h.lacks {
		slices.Sort(h.needs)
		return nil, &NeedError{Seqs: slices.Compact(h.needs)}
	}
	return h.shown, h.err
}

// history is one in the making.
type history struct {
	question
	shown []shown

	needs []uint64 // records of hidden events, those at hand too
	lacks bool     // some are not at hand
	err   error
}

// putBack shows what the patch that made a node took out, if the node is the first that stands for it, or else
// the first that the patch made.
func (h *history) putBack(n *node) {
	c := n.cut
	if c == nil || c.revert || len(c.standIns) == 0 && n.index != 0 || len(c.standIns) > 0 && n.index != c.standIns[0].index {
		return
	}
	of, alike := nowhere, !h.isMixed(c)
	if alike {
		of = h.hiddenBy(c, noLane)
	}
	for i := range c.out.pieces {
		p := &c.out.pieces[i]
		h.putBack(&p.node)
		if n := p.node; !p.isStandIn() && !(alike && of == nowhere) {
			for range p.events {
				n.event = h.event(n.id())
				if n.event != nil && !alike {
					of = h.hiddenBy(c, laneOf(n.event))
				}
				if n.event != nil && of != nowhere {
					h.shown = append(h.shown, shown{n, of})
				}
				n.seq++
			}
		}
	}
}

// event returns the event of a node, or nil if it is not at hand.
func (h *history) event(of nodeID) *patch.Event {
	e, err := h.view.hand.event(of.seq, of.index)
	if err != nil {
		h.err = err
	}
	h.needs = append(h.needs, of.seq)
	h.lacks = h.lacks || e == nil && err == nil
	return e
}

// isMixed reports whether the events that a patch took out may be represented differently, by their lanes.
func (p *Places) isMixed(c *cut) bool {
	if c.puts {
		return len(c.standIns) > 1
	}
	return c.keep && p.mixed[c.group]
}

// saysCleared reports whether an event says that it stands for another one, of which it leaves
// out results.
func saysCleared(e *patch.Event) bool {
	_, ok := e.Origin()
	return ok
}

// lane is what must not be mixed in one summary: a branch, without the numbers of its runs,
// and an isolation scope.
type lane struct{ branch, scope string }

func laneOf(e *patch.Event) lane {
	return lane{records.BranchWithoutRuns(e.Branch()), e.IsolationScope()}
}

// noLane is that of a marker, which no event has.
var noLane = lane{"\x00", "\x00"}

// standIn is an event that a patch put in for events that it took out: a summary of those of its lane,
// or a copy of one, without its results.
type standIn struct {
	lane
	index  int32
	copied bool
}

// standInsOf returns the stand-ins among the nodes that a patch puts in.
func standInsOf(nodes []node) (all []standIn) {
	for i := range nodes {
		n := &nodes[i]
		if n.event == nil {
			continue
		}
		if copied := saysCleared(n.event); copied || n.isSummary() {
			all = append(all, standIn{laneOf(n.event), n.index, copied})
		}
	}
	return all
}

// isStandIn reports whether the node is an event that stands for others.
func (n *node) isStandIn() bool {
	return n.cut != nil && slices.ContainsFunc(n.cut.standIns, func(s standIn) bool { return s.index == n.index })
}

// summaryOf returns the summary that stands for what the patch took out of a lane: that of the lane,
// or else the first. ok is false if the patch put no summary in.
func (c *cut) summaryOf(of lane) (summary standIn, ok bool) {
	for _, s := range c.standIns {
		switch {
		case s.copied:
		case s.lane == of:
			return s, true
		case !ok:
			summary, ok = s, true
		}
	}
	return summary, ok
}
