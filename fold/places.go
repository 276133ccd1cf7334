package fold

import (
	"cmp"
	"errors"
	"iter"
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
	for n := range v.root.all {
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
// as those of other programs, are there as they are. The entries are in the order of the log;
// their indices are not those of the visible log, and no patch should be made of them. The
// state is the view's.
//
// Of several summaries that one patch put in, each stands for the events of its branch and
// isolation scope. So if one of them is cut, what it stood for is not shown. What a patch of a
// group took out without a summary in its place, and kept the state of, belongs to the
// summaries of the group, whatever became of the place. What compaction took out without any
// summary, since it says nothing, is shown where it stood.
//
// The error is a *[NeedError] if the view must be given records of its log, and then perhaps
// others ([View.With]). The slice
// is the caller's own. History takes time linear in what it returns.
func (v View) History() ([]Entry, error) {
	shown, err := v.history()
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(shown))
	for i := range shown {
		entries[i] = v.entry(&shown[i].node)
	}
	return entries, nil
}

// HistoryParts returns the history ([View.History]) in parts, one for each visible event, by
// its index: what a summary stands for, or else the event alone. A summary stands for nothing
// if all that it told of is told of by another one. What compaction took out without a summary is
// in no part. The error is as that of History, and the
// slices are the caller's own.
func (v View) HistoryParts() ([][]Entry, error) {
	shown, err := v.history()
	if err != nil {
		return nil, err
	}
	parts := make([][]Entry, v.Len())
	for i := range shown {
		if of := shown[i].of; of >= 0 {
			parts[of] = append(parts[of], v.entry(&shown[i].node))
		}
	}
	return parts, nil
}

func (v View) history() ([]shown, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	h := history{hand: v.hand, told: map[string]telling{}}
	for {
		h.shown, h.needs, h.lacks, h.again, h.of = nil, nil, false, false, -1
		h.opened, h.apart = map[*cut]bool{}, false
		for n := range v.root.all {
			if n.event != nil {
				h.of++
			}
			h.show(*n)
		}
		if len(h.told) > 0 && h.groupCuts == nil {
			h.groupCuts = v.patches.keptOfGroups()
		}
		for _, c := range slices.Backward(h.groupCuts) { // the newest first: older ones' markers are in its run
			if _, told := h.told[c.group]; told && !h.opened[c] {
				h.apart = true
				h.openOfGroup(c)
			}
		}
		if h.lacks {
			slices.Sort(h.needs)
			return nil, &NeedError{Seqs: slices.Compact(h.needs)}
		}
		if h.err != nil {
			return nil, h.err
		}
		if !h.again {
			break
		}
	}
	if h.apart {
		slices.SortStableFunc(h.shown, func(a, b shown) int { return cmp.Compare(a.pos(), b.pos()) })
	}
	return h.shown, nil
}

// shown is a node of a history, and the index of the visible event that stands for it.
type shown struct {
	node
	of int
}

// history is one in the making.
type history struct {
	hand  hand
	shown []shown
	of    int                // the index of the visible event that is looked into
	apart bool               // they came of summaries that share a run, and are not in their order
	told  map[string]telling // by group
	again bool               // a group became known whose markers may have been passed

	groupCuts []*cut        // that belong to summaries of their group
	opened    map[*cut]bool // of these, those whose markers were passed

	needs []uint64 // records of hidden events, those at hand too
	lacks bool     // some are not at hand
	err   error
}

// telling is which summaries of a group are in sight, by the cut that put them in, and in
// which visible event.
type telling struct {
	cut     *cut
	inSight map[int32]int
}

// show adds a node, or what it stands for.
func (h *history) show(n node) {
	switch {
	case n.event == nil:
		if _, told := h.told[n.cut.group]; told && n.cut.keep {
			h.openOfGroup(n.cut)
		} else if n.cut.wordless {
			h.open(n.cut, func(node) (int, bool) { return -1, true })
		}
	case n.cut != nil && saysCleared(n.event) && n.cut.tookOutEvents():
		at := h.of
		h.open(n.cut, func(node) (int, bool) { return at, true })
	case n.cut == nil || !n.isSummary() || !n.cut.tookOutEvents():
		h.shown = append(h.shown, shown{n, h.of})
	default:
		h.tell(n)
		h.apart = h.apart || len(n.cut.summaries) > 1
		at := h.of
		h.open(n.cut, func(of node) (int, bool) { return at, n.cut.summaryOf(of) == n.index })
	}
}

// openOfGroup shows what a patch without a summary took out, with the summaries of its group.
func (h *history) openOfGroup(c *cut) {
	h.opened[c] = true
	t := h.told[c.group]
	h.open(c, func(n node) (of int, belongs bool) {
		of, belongs = t.inSight[t.cut.summaryOf(n)]
		return of, belongs
	})
}

// keptOfGroups returns the patches of groups that stand, kept the state, and put nothing in.
func (l *patchList) keptOfGroups() (cuts []*cut) {
	undone := l.undone(0)
	for _, c := range l.ascending() {
		if c.group != "" && c.keep && !c.puts && !undone[c] {
			cuts = append(cuts, c)
		}
	}
	return cuts
}

// saysCleared reports whether an event says that it stands for another one, of which it leaves
// out results.
func saysCleared(e *patch.Event) bool {
	_, ok := e.Origin()
	return ok
}

// tell notes that a summary is in sight.
func (h *history) tell(n node) {
	group := n.cut.group
	if group == "" {
		return
	}
	t, ok := h.told[group]
	if !ok {
		t = telling{n.cut, map[int32]int{}}
		h.told[group] = t
	}
	if _, known := t.inSight[n.index]; !known && t.cut == n.cut {
		t.inSight[n.index] = h.of
		h.again = true
	}
}

// open shows those of the nodes that a patch took out which belong to a visible event.
func (h *history) open(c *cut, belongs func(node) (of int, ok bool)) {
	h.needs = append(h.needs, c.out.seqs()...)
	nodes, err := c.out.with(h.hand, nil)
	switch {
	case errors.As(err, new(*NeedError)):
		h.lacks = true
	case err != nil:
		h.err = err
	}
	here := h.of
	for _, n := range nodes {
		if of, ok := belongs(n); ok {
			h.of = of
			h.show(n)
		}
	}
	h.of = here
}

// tookOutEvents reports whether the patch took out anything that was visible.
func (c *cut) tookOutEvents() bool {
	return slices.ContainsFunc(c.out.nodes, func(n node) bool { return n.event != nil }) ||
		slices.ContainsFunc(c.out.pieces, func(p piece) bool { return p.events > 0 })
}

// lane is what must not be mixed in one summary: a branch, without the numbers of its runs,
// and an isolation scope.
type lane struct{ branch, scope string }

func laneOf(e *patch.Event) lane {
	return lane{patch.BranchWithoutRuns(e.Branch()), e.IsolationScope()}
}

// summary is one of several events that a patch put in.
type summary struct {
	lane
	index int32
}

// summariesOf returns the summaries among the nodes that a patch puts in, if these are
// several.
func summariesOf(nodes []node) []summary {
	if len(nodes) < 2 {
		return nil
	}
	var all []summary
	for i := range nodes {
		if nodes[i].isSummary() {
			all = append(all, summary{laneOf(nodes[i].event), nodes[i].index})
		}
	}
	return all
}

// summaryOf returns the index of the summary that stands for a node that the patch took
// out: that of its lane, or else the first.
func (c *cut) summaryOf(n node) int32 {
	if n.event == nil || len(c.summaries) == 0 {
		return c.summaryOfLane(noLane)
	}
	return c.summaryOfLane(laneOf(n.event))
}

// noLane is that of a marker, which no event has.
var noLane = lane{"\x00", "\x00"}

func (c *cut) summaryOfLane(of lane) int32 {
	if len(c.summaries) == 0 {
		return 0
	}
	for _, s := range c.summaries {
		if s.lane == of {
			return s.index
		}
	}
	return c.summaries[0].index
}
