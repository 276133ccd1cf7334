package fold

import (
	"cmp"
	"errors"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

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
		h.opened = map[*cut]bool{}
		for n := range v.root.all {
			if n.event != nil {
				h.of++
			}
			h.show(*n)
		}
		if len(h.told) > 0 && h.groupCuts == nil {
			h.groupCuts = v.patches.keptOfGroups()
		}
		for _, c := range h.groupCuts {
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
