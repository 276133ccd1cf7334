package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// node is an entry in the conversation's tree. Its parent is an earlier entry of the file.
type node struct {
	id        string // id of the entry
	eventID   string // id of the entry's event; for a summary, the id of the active summary event
	parent    *node
	depth     int
	line      int // number of the entry, which ascends in file order
	content   bool
	prompt    bool
	summary   bool
	messageID string
	callers   []*node // nodes of the calls whose results are in this node

	hiddenBy      int   // number of the change that hides the node, or 0 if the node is visible or has no content
	summaryChange int   // number of the summary's change, or 0 if the node is no summary or its change was reverted
	keptBySummary *node // the summary that kept the node
	lastSummary   *node // the newest summary on the node's path, which includes the node
	summarySource *summary
}

type summary struct {
	event       *patch.Event
	kept        []*node
	requireKept bool
}

// change is a set of patches that hid events together. The patches are the cuts of a move, or a summary. Changes are
// reverted newest first, so that no patch blocks a revert.
type change struct {
	patches []string
	hides   []*node
	summary *node // nil for a move
}

// tree is the conversation up to the current line. Its nodes are entries. The visible events of the log are the
// events on the path from the root to the leaf.
//
// When the leaf changes, changes are reverted, newest first. This ends when no change hides a node of the new path
// and every active summary is on the new path. Then the events outside the new path are cut. If the newest summary
// on the new path was reverted, it is inserted again.
type tree struct {
	view        fold.View
	nodes       map[string]*node  // key: id of the entry
	events      map[string]*node  // key: id of the event
	firstPieces map[string]*node  // key: id of the message; value: the node of the message's first piece
	callers     map[string]*node  // key: id of the call; value: the newest node that has the call
	entries     []*node           // in file order; nil for an entry that is not part of the tree
	session     string            // id of the session, or "" if no line had an id yet
	callNames   map[string]string // names of functions, by id of the call
	leaf        *node
	changes     []change
	onPath      map[*node]bool // nodes that the last move visited: true for a node on the new path, false for a node on the old path
	steps       int
	size        int                      // size of the file in bytes
	agent       string                   // author of the program's own events
	newID       func(what string) string // returns ids for patches
	logged      []patch.Record           // the log so far, with seqs
	entryStart  int                      // number of records in the log before the current entry
}

// Values of the key "did" in the metadata of patches.
const (
	didRewind     = "rewind"
	didCompaction = "compaction"
)

// Limits for the steps that the moves in a file may take: a constant, plus a share of the file's size. They allow
// hundreds of moves between long branches.
const (
	baseSteps     = 1 << 17
	bytesPerStep  = 64
	stepsPerPatch = 4
)

func newTree(agent string) *tree {
	return &tree{agent: agent, nodes: map[string]*node{}, events: map[string]*node{}, firstPieces: map[string]*node{}, callers: map[string]*node{}, callNames: map[string]string{}}
}

func (t *tree) addSteps(n int) error {
	if t.steps += n; t.steps > baseSteps+t.size/bytesPerStep {
		return fmt.Errorf("%w: the conversation switches between branches too often", patch.ErrTooLarge)
	}
	return nil
}

// resolve returns the node to which a line refers by an id, or nil.
func (t *tree) resolve(id string) *node {
	n := t.nodes[id]
	if n != nil && n.keptBySummary != nil {
		return n.keptBySummary // the children of a kept message follow the summary
	}
	return n
}

func (t *tree) appendRecord(r patch.Record) error {
	r.Seq = t.view.Seq() + 1
	skipped := t.view.SkippedCount()
	next, err := t.view.WithRecords(t.logged).Apply(r)
	if err == nil && next.SkippedCount() != skipped {
		err = fmt.Errorf("%w: patch %q of the conversation's tree does not apply", patch.ErrInvalid, r.ID())
	}
	if err != nil {
		return err
	}
	t.view, t.logged = next, append(t.logged, r)
	return nil
}

func (t *tree) appendPatch(p *patch.PatchEvent, what string, source entry, group string) (string, error) {
	if err := t.addSteps(stepsPerPatch); err != nil {
		return "", err
	}
	id := t.newID("patch " + strconv.Itoa(len(t.logged)-t.entryStart))
	if !source.time.IsZero() {
		p = p.WithTimestamp(source.time)
	}
	p, err := p.WithID(id).WithAuthor(t.agent).WithGroup(group).
		WithCustomMetadata(map[string]any{lineKey: map[string]any{"did": what}})
	if err != nil {
		return "", err
	}
	return id, t.appendRecord(patch.Record{Patch: p})
}

// coveredCount returns the number of visible events that a summary replaces, counted from the first visible event.
// These are the events before the first visible event in kept. If no event in kept is visible, they are all events
// up to the given line. If strict is set, at least one event in kept must be visible. If the count is 0, the result
// why is the reason why the summary cannot be used.
func (t *tree) coveredCount(kept []*node, strict bool, line int) (count int, why string, err error) {
	for i := t.view.Len(); i > 0 && count == 0; i-- {
		if n := t.events[t.view.At(i-1).ID()]; n != nil && n.line <= line {
			count = i
		}
	}
	found := false
	for _, n := range kept {
		if i, ok := t.view.Find(n.eventID); ok {
			count, found = min(count, i), true
		}
	}
	if strict && !found {
		return 0, "the first event that it keeps is not visible", nil
	}
	if err := t.addSteps(t.view.Len()); err != nil {
		return 0, "", err
	}
	// If the response to a call stays visible, the call stays visible too.
	for _, c := range slices.Backward(t.view.Calls()) {
		if c.Index < count && len(c.Responses) > 0 && c.Responses[len(c.Responses)-1] >= count {
			count = c.Index
		}
	}
	for i := range count {
		if t.view.At(i).SaysSomething() {
			return count, "", nil
		}
	}
	return 0, "no event that it covers is visible", nil
}

// addEntry adds an entry and returns its node, or nil if the entry is not part of the tree. It calls event to
// make the event of the entry.
func (t *tree) addEntry(e entry, line int, event func(entry) (*patch.Event, error)) (*node, error) {
	t.entryStart = len(t.logged)
	if e.followsLeaf {
		e.parent = t.leaf
	}
	if e.inTree && e.becomesLeaf {
		if err := t.moveLeaf(e.parent, e); err != nil {
			return nil, err
		}
	}
	count := 0
	if e.compaction {
		why := "it does not say what it covers"
		if e.summary && len(e.parts) > 0 {
			var err error
			if count, why, err = t.coveredCount(e.kept, e.requireKept, line); err != nil {
				return nil, err
			}
		}
		if e.encrypted {
			why = "the provider keeps its summary encrypted"
		}
		if e.note = "compaction"; count == 0 {
			e.note = "compaction left as an event: " + why
		}
	}
	ev, err := event(e)
	if err != nil {
		return nil, err
	}
	if !e.inTree {
		return nil, t.appendRecord(patch.Record{Event: ev})
	}
	n := &node{
		eventID: ev.ID(), parent: e.parent, line: line,
		content: ev.SaysSomething(), prompt: e.prompt, summary: count > 0 && ev.SaysSomething(), messageID: e.messageID,
	}
	for _, id := range e.resultIDs {
		if caller := t.callers[id]; caller != nil {
			n.callers = append(n.callers, caller)
		}
	}
	if n.parent != nil {
		n.depth, n.lastSummary = n.parent.depth+1, n.parent.lastSummary
	}
	if n.summary {
		n.lastSummary, n.summarySource = n, &summary{ev, e.kept, e.requireKept}
		err = t.summarise(n, count, ev, didCompaction, e)
		for _, k := range e.kept {
			if e.reparentKept && k.hiddenBy == 0 {
				k.keptBySummary = n
			}
		}
	} else {
		err = t.appendRecord(patch.Record{Event: ev})
	}
	if err != nil {
		return nil, err
	}
	if n.id = cmp.Or(e.alias, e.id); n.id != "" {
		t.nodes[n.id] = n
	}
	t.events[n.eventID] = n
	if n.messageID != "" && t.firstPieces[n.messageID] == nil {
		t.firstPieces[n.messageID] = n
	}
	for _, id := range e.callIDs {
		t.callers[id] = n
	}
	if e.becomesLeaf || e.parent == t.leaf {
		t.leaf = n
	}
	return n, nil
}

// summarise replaces the first count visible events by a summary.
func (t *tree) summarise(n *node, count int, event *patch.Event, what string, at entry) error {
	c := change{summary: n}
	for i := range count {
		if covered := t.events[t.view.At(i).ID()]; covered != nil {
			c.hides = append(c.hides, covered)
		}
	}
	id, err := t.appendPatch(patch.NewSummarise(0, count, event), what, at, "")
	if err != nil {
		return err
	}
	c.patches = []string{id}
	t.addChange(c)
	return nil
}
