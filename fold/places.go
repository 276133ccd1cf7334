package fold

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Places locates the events of a view's log. A visible event has an index, and a hidden event has a patch that
// hides it. Places is immutable.
type Places struct {
	view   View
	cuts   map[uint64]*cut   // all applied patches, by seq
	groups map[string][]*cut // patches that added a summary, by group
	mixed  map[string]bool   // groups with a patch that added several stand-ins
	hidden []hiddenRange
}

// hiddenRange is a range of nodes that a patch removed: regular events with consecutive seqs, or one node that
// another patch created.
type hiddenRange struct {
	first nodeID
	last  uint64 // seq of the last node
	by    *cut
}

// Place is the position of a visible event, or the patch that hides a hidden event.
type Place struct {
	Index int `json:"index"` // index among the visible events; -1 if the event is hidden

	// HiddenBy is the id of the patch that hides the event, and HiddenBySeq is its seq. Another patch may hide
	// the events that this patch added. To make the event visible, it may therefore be necessary to revert
	// several patches.
	HiddenBy    string `json:"hiddenBy"`
	HiddenBySeq uint64 `json:"hiddenBySeq"`
}

// Places returns the places of all events in the view's log. It takes time linear in the number of patches and
// of removed nodes. It returns the same errors as [View.Skipped].
func (v View) Places() (*Places, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	p := &Places{view: v, cuts: map[uint64]*cut{}, groups: map[string][]*cut{}, mixed: map[string]bool{}}
	inactive := v.patches.inactive(0)
	for c := v.patches; c != nil; c = c.older {
		p.cuts[c.seq] = c
		if _, ok := c.summaryOf(markerLane); ok && c.group != "" {
			p.groups[c.group] = append(p.groups[c.group], c)
			p.mixed[c.group] = p.mixed[c.group] || len(c.standIns) > 1
		}
		// A redo removes nodes again, but the patch that it redoes counts as the hiding patch. In "2:cut e,
		// 3:revert 2, 4:revert 3", both 2 and 4 removed e, and e counts as hidden by 2.
		if !inactive[c] && !(c.isRevert && c.target.isRevert) {
			p.addHidden(c)
		}
	}
	slices.SortFunc(p.hidden, func(a, b hiddenRange) int { return a.first.compare(b.first) })
	return p, nil
}

func (id nodeID) compare(other nodeID) int {
	return cmp.Or(cmp.Compare(id.seq, other.seq), cmp.Compare(id.index, other.index))
}

func (p *Places) addHidden(c *cut) {
	for _, piece := range c.removed.pieces {
		p.hidden = append(p.hidden, hiddenRange{piece.id(), piece.seq + uint64(max(piece.events, 1)) - 1, c})
	}
}

// Of returns the place of an event. The arguments are the seq of the event's record, and the event's index in
// [patch.Record.Events]. If the view's log has no such event, or if its patch was skipped, ok is false.
func (p *Places) Of(seq uint64, index int) (place Place, ok bool) {
	id := nodeID{seq, int32(index)}
	if c := p.cuts[seq]; c != nil && !c.addsEvents {
		return Place{Index: -1}, false
	}
	if rank := p.rank(id); rank >= 0 {
		return Place{Index: p.view.nodes.visibleBefore(rank)}, true
	}
	if c := p.hidingPatch(id); c != nil {
		return Place{Index: -1, HiddenBy: c.id, HiddenBySeq: c.seq}, true
	}
	return Place{Index: -1}, false
}

// hidingPatch returns the patch that removed a node, or nil.
func (p *Places) hidingPatch(id nodeID) *cut {
	i, found := slices.BinarySearchFunc(p.hidden, id, func(s hiddenRange, id nodeID) int { return s.first.compare(id) })
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

// rank returns a node's rank in the sequence. If the node is not in the sequence, it returns -1.
func (p *Places) rank(id nodeID) int {
	pos := id.seq
	if c := p.cuts[id.seq]; c != nil {
		pos = c.pos
	}
	nodes := p.view.nodes
	first := nodes.firstAtPos(pos)
	// The nodes of a patch are usually adjacent, so the index is tried first. If that fails, a linear search
	// checks all nodes with this pos. It would be slow for a replacement of thousands of events.
	if at := first + int(id.index); at < nodes.len() && nodes.nodeAt(at).id() == id {
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

// IsRepresented reports whether an event is visible, or whether a visible event represents it. The arguments
// branch and scope are the event's branch and isolation scope. A summary represents the events that it covers,
// and a cleared copy represents its original. If the summary or the copy is hidden, its own representative
// represents the event. An event that a cut, a splice or a rewind removed has no representative.
//
// The represented events are the events that [View.History] returns, and the summaries. If one patch hides two
// events with the same branch and scope, either both are represented or neither is.
func (p *Places) IsRepresented(seq uint64, index int, branch, scope string) bool {
	q := representatives{Places: p, cache: map[memoKey]int{}}
	return q.ofNode(nodeID{seq, int32(index)}, lane{records.BranchWithoutRuns(branch), scope}) != notRepresented
}

// Results of a search that finds no visible event.
const (
	markerOnly = -1 - iota // compaction removed the event without a summary, so only the patch's marker represents it
	notRepresented
)

// representatives finds the visible events that represent hidden events. The representative of an event that a
// patch removed is the first of these that exists:
//
//   - the patch's summary for the event's lane, or its copy of the event
//   - if the patch kept the state but added no event, the summary for this lane that another patch of its group
//     added
//   - if compaction removed the event without a summary, the patch's marker
//
// If the representative is hidden, its own representative takes its place.
type representatives struct {
	*Places
	cache map[memoKey]int
	open  []memoKey // keys that the outermost call of memoize has evaluated so far
}

// memoKey identifies a set of events with the same representative. These are the events of one lane that a
// patch removed, or that the patches of a group removed without a summary.
type memoKey struct {
	cut   *cut
	group string
	lane
}

// ofNode returns the index of the visible event that represents a node. A visible node represents itself.
func (q *representatives) ofNode(id nodeID, of lane) int {
	if rank := q.rank(id); rank >= 0 {
		if q.view.nodes.nodeAt(rank).event == nil {
			return markerOnly
		}
		return q.view.nodes.visibleBefore(rank)
	}
	c := q.hidingPatch(id)
	if c == nil {
		return notRepresented
	}
	return q.ofRemoved(c, of)
}

// ofRemoved returns the index of the visible event that represents the events of one lane that a patch removed.
func (q *representatives) ofRemoved(c *cut, of lane) int {
	switch {
	case c.addsEvents:
		return q.memoize(memoKey{cut: c, lane: of}, func() int {
			// A splice may add a summary and copies, such as "summary, copy of b" for a, b and c. All events of
			// the lane get the same result, so one visible or represented stand-in is sufficient.
			summary, _ := c.summaryOf(of)
			for _, s := range c.standIns {
				if s.copied || s == summary {
					if at := q.ofNode(nodeID{c.seq, s.index}, s.lane); at != notRepresented {
						return at
					}
				}
			}
			return notRepresented
		})
	case !c.keepsState:
		return notRepresented
	}
	at := notRepresented
	if withSummary := q.groups[c.group]; len(withSummary) > 0 {
		at = q.memoize(memoKey{group: c.group, lane: of}, func() int {
			for _, by := range withSummary {
				s, _ := by.summaryOf(of)
				if at := q.ofNode(nodeID{by.seq, s.index}, s.lane); at != notRepresented {
					return at
				}
			}
			return notRepresented
		})
	}
	if at == notRepresented && c.isCompactionCut {
		at = q.memoize(memoKey{cut: c, lane: markerLane}, func() int { return q.ofNode(nodeID{c.seq, 0}, markerLane) })
	}
	return at
}

// memoize caches the result of find by key. The function find may call memoize with the same key.
func (q *representatives) memoize(key memoKey, find func() int) int {
	if at, ok := q.cache[key]; ok {
		return at
	}
	// The search can cycle if a group has a summary and a cut. The summary represents the events of the cut. If
	// the cut also removed that summary, the summary would be its own representative. The preliminary result
	// notRepresented ends the cycle.
	outermost := len(q.open) == 0
	q.open = append(q.open, key)
	q.cache[key] = notRepresented
	at := find()
	if at != notRepresented {
		q.cache[key] = at
	}
	if outermost {
		for _, k := range q.open { // forget preliminary results, which may be wrong because of a cycle
			if at != notRepresented && q.cache[k] == notRepresented {
				delete(q.cache, k)
			}
		}
		q.open = nil
	}
	return at
}

// HiddenSince returns the hidden events of the view's log, each with the seq of the last patch that hid it.
// This patch may be the revert of a revert. Pinned events are left out. HiddenSince returns the same errors as
// [View.Skipped].
func (v View) HiddenSince() (map[Ref]uint64, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	since := map[Ref]uint64{}
	for _, c := range v.patches.ascending() {
		for n := range c.removedNodes {
			if n.cut == nil || n.cut.addsEvents {
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

// Ref identifies an event of a log by the seq of its record and its index in [patch.Record.Events]. The index
// of a regular event is 0.
type Ref struct {
	Seq   uint64 `json:"seq"`
	Index int    `json:"index"`
}

// Cut describes which events a patch removed from the visible log, and how many events it added in their place.
type Cut struct {
	Seq     uint64 // seq of the patch
	Group   string // group of the patch, or ""
	Added   int    // number of added events; their indices are 0 to Added-1
	Removed iter.Seq[Ref]
}

// Cuts yields a [Cut] for each applied patch in log order, even if the patch was reverted. It yields none for
// reverts, pins, unpins and receipts. Besides events, the field Removed may yield the markers of patches that added
// no event. Cuts returns the same errors as [View.Skipped].
func (v View) Cuts() (iter.Seq[Cut], error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	return func(yield func(Cut) bool) {
		for _, c := range v.patches.ascending() {
			if c.isRevert || c.nodeCount == 0 {
				continue
			}
			out := func(yield func(Ref) bool) {
				for n := range c.removedNodes {
					if !yield(Ref{n.seq, int(n.index)}) {
						return
					}
				}
			}
			added := 0
			if c.addsEvents {
				added = int(c.nodeCount)
			}
			if !yield(Cut{c.seq, c.group, added, out}) {
				return
			}
		}
	}, nil
}

// History returns the session without the effects of compaction, for display to people. It is the visible log
// with two changes. In place of a summary, it contains the events that the summary covers, at any depth. In
// place of a cleared copy, it contains the original. Events that cuts, splices and rewinds removed stay hidden.
// A summary that covers no events, such as a summary of another program, stays.
//
// The entries are in log order. The Index of an entry is the index of the visible event that represents it. If
// compaction removed the event without a summary, Index is -1.
//
// These rules also apply:
//
//   - If one patch added several summaries, each of them covers the events of its branch and isolation scope.
//     If a summary is cut, the events that it covers stay hidden.
//   - If a patch of a group kept the state but added no summary, the group's summaries cover the events that it
//     removed.
//   - If compaction removed events without content and without a summary, these events are at their old
//     position.
//
// If the view needs more records, the error is a *[MissingRecordsError]; see [View.WithRecords]. The caller
// owns the slice. History takes time linear in its result and in the number of patches.
func (v View) History() ([]Entry, error) { return v.HistoryPage("", 0, math.MaxInt) }

// HistoryPage returns at most limit entries of [View.History]: the last entries in front of a given event. The
// event is identified by its id, which is the argument before, and by the seq of its record. If that id is "",
// HistoryPage returns the last entries of the history. HistoryPage needs only the hidden events of this page,
// and the given event. If the history does not contain the event, the error matches [ErrEventNotFound].
func (v View) HistoryPage(before string, seq uint64, limit int) ([]Entry, error) {
	p, err := v.Places()
	if err != nil {
		return nil, err
	}
	h := history{representatives: representatives{Places: p, cache: map[memoKey]int{}}}
	index := 0
	for n := range v.nodes.all {
		h.expand(n)
		if n.event == nil {
			continue
		}
		if !n.isStandIn() {
			h.nodes = append(h.nodes, historyNode{node: *n, representative: index})
		}
		index++
	}
	var page []*historyNode
	found := before == ""
	for i := len(h.nodes) - 1; i >= 0 && !(found && len(page) == limit); i-- {
		n := &h.nodes[i]
		if !found && n.seq != seq {
			continue
		}
		h.loadEvent(n)
		switch {
		case n.event != nil && n.representative == notRepresented:
		case found:
			page = append(page, n)
		default: // if the event is missing, the caller supplies it and calls again
			found = n.event == nil || n.event.ID() == before
		}
	}
	if err := cmp.Or(h.err, h.errorUpTo(v.seq)); err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%w: the history has no event %q", ErrEventNotFound, before)
	}
	entries := make([]Entry, len(page))
	for i, n := range page {
		entries[len(page)-1-i] = v.entry(n.representative, &n.node)
	}
	return entries, nil
}

type historyNode struct {
	node
	representative int  // index of the visible event that represents the node's event, or markerOnly or notRepresented
	removedBy      *cut // if not nil, the patch that removed the event; the representative then depends on the event's lane
}

// loadEvent sets the event of a node if the caller has supplied the record. If the node's representative depends on the
// event's lane, loadEvent then also finds the representative.
func (h *history) loadEvent(n *historyNode) {
	if n.event != nil {
		return
	}
	var err error
	if n.event, err = h.event(h.view.supplied, n.id()); err != nil {
		h.err = err
	}
	if n.removedBy != nil && n.event != nil {
		n.representative = h.ofRemoved(n.removedBy, laneOf(n.event))
	}
}

type history struct {
	representatives
	missingRecords
	nodes []historyNode
	err   error
}

// expand adds the events that the node's patch removed. To add them once per patch, it does so only at the
// patch's first stand-in. If the patch has no stand-in, it does so at the patch's first node.
func (h *history) expand(n *node) {
	c := n.cut
	if c == nil || c.isRevert || len(c.standIns) == 0 && n.index != 0 || len(c.standIns) > 0 && n.index != c.standIns[0].index {
		return
	}
	// The removed events of a patch usually have the same representative. Their lanes then do not matter. If
	// there is no representative, the events need not be read. If the patch added several summaries, the
	// representative depends on the event's lane.
	removed := historyNode{representative: notRepresented, removedBy: c}
	if !h.isMixed(c) {
		removed = historyNode{representative: h.ofRemoved(c, markerLane)}
	}
	for i := range c.removed.pieces {
		p := &c.removed.pieces[i]
		h.expand(&p.node)
		if removed.node = p.node; p.isStandIn() || removed.representative == notRepresented && removed.removedBy == nil {
			continue
		}
		for range p.events {
			h.nodes = append(h.nodes, removed)
			removed.seq++
		}
	}
}

// isMixed reports whether the representatives of the events that a patch removed depend on the events' lanes.
func (p *Places) isMixed(c *cut) bool {
	if c.addsEvents {
		return len(c.standIns) > 1
	}
	return c.keepsState && p.mixed[c.group]
}

// isClearedCopy reports whether an event is a copy of another event in which results were cleared or shortened.
func isClearedCopy(e *patch.Event) bool {
	_, ok := e.Origin()
	return ok
}

// lane is a branch and an isolation scope. The branch is stored without the run numbers that ADK's workflows add.
// A summary covers events of one lane.
type lane struct{ branch, scope string }

func laneOf(e *patch.Event) lane {
	return lane{records.BranchWithoutRuns(e.Branch()), e.IsolationScope()}
}

// markerLane is a lane that no event has. It is the lane of markers, and stands for any lane where lanes do not matter.
var markerLane = lane{"\x00", "\x00"}

// standIn is an added event that represents removed events. It is a summary of the removed events of its lane,
// or a cleared copy of a removed event.
type standIn struct {
	lane
	index  int32
	copied bool
}

func standInsOf(nodes []node) (all []standIn) {
	for i := range nodes {
		n := &nodes[i]
		if n.event == nil {
			continue
		}
		if copied := isClearedCopy(n.event); copied || n.isSummary() {
			all = append(all, standIn{laneOf(n.event), n.index, copied})
		}
	}
	return all
}

func (n *node) isStandIn() bool {
	return n.cut != nil && slices.ContainsFunc(n.cut.standIns, func(s standIn) bool { return s.index == n.index })
}

// summaryOf returns the patch's summary for the events of a lane. If no summary has this lane, it returns the
// first summary. If the patch added no summary, ok is false.
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
