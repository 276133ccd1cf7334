package fuzz

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Reference is the fold that docs/SEMANTICS.md describes. It stores the nodes and the effect of each applied patch,
// and computes all results from these on demand. It is slow, and it is not safe for concurrent use.
type Reference struct {
	initial map[string]patch.Value
	log     []patch.Record
	nodes   []*node
	applied []*applied
	skipped []patch.Skip
}

// node is an event, a summary or an invisible marker. A patch replaces a run of nodes. If the patch inserts no
// events, it inserts a marker. If its policy is keep, the first inserted node carries the net state delta of the
// run. A node is identified by its pointer.
type node struct {
	event          *patch.Event           // nil for a marker
	seq            uint64                 // seq of the record, if the event was appended
	insertedBy     *applied               // patch that inserted the node, or nil
	fromSummarise  bool                   // whether the node is the summary of a summarise
	isRevertMarker bool                   // whether the node is the marker of a revert
	carriedState   map[string]patch.Value // net state delta of the replaced run, if the policy is keep
}

// isSummary reports whether a visible node is a summary. It is the summary of a summarise, or an event with
// actions.compaction.
func (n *node) isSummary() bool { return n.fromSummarise || n.event.IsSummary() }

// NewReference returns the fold of a log. It ignores keys of the initial state that start with "app:", "user:"
// or "temp:". It does not retain the map.
func NewReference(initial map[string]patch.Value, log ...patch.Record) *Reference {
	r := &Reference{initial: map[string]patch.Value{}}
	for key, value := range initial {
		if isSessionKey(key) {
			r.initial[key] = value
		}
	}
	for _, rec := range log {
		r.Apply(rec)
	}
	return r
}

func isSessionKey(key string) bool {
	return !strings.HasPrefix(key, patch.PrefixApp) && !strings.HasPrefix(key, patch.PrefixUser) && !strings.HasPrefix(key, patch.PrefixTemp)
}

// Apply adds the next record of the log. It never fails. If a patch cannot be applied, only Seq and PatchSeq change,
// and [Reference.Skipped] lists the patch. Apply checks neither bases nor orphans. [Reference.Check] makes these
// checks.
func (r *Reference) Apply(rec patch.Record) {
	r.log = append(r.log, rec)
	switch {
	case rec.Event != nil:
		r.nodes = append(r.nodes, &node{event: rec.Event, seq: rec.Seq})
	case rec.Patch != nil && rec.Patch.Type() == patch.Erase && rec.Patch.Validate() == nil:
		// A receipt does not change the visible log.
	case rec.Patch != nil:
		s, reason, _ := r.step(rec.Patch)
		if reason != "" {
			r.skipped = append(r.skipped, patch.Skip{Seq: rec.Seq, Reason: patch.Flaw(reason)})
			return
		}
		r.commit(s, applied{seq: rec.Seq, id: rec.Patch.ID(), group: rec.Patch.Group(), compactionCut: isCompactionCut(rec.Patch)})
	}
}

// isCompactionCut reports whether p is a patch of compaction that removes events, keeps their state and inserts
// nothing.
func isCompactionCut(p *patch.PatchEvent) bool {
	return p.Type() == patch.Splice && p.Author() == patch.CompactionAuthor && p.StatePolicy() == patch.Keep && len(p.NewEvents()) == 0
}

// step is the effect of a patch p. The field after has the nodes after p, in has the inserted nodes in(p), and out
// has the removed run out(p).
type step struct {
	after, in, out []*node
	newCount       int      // number of new nodes, which are the first nodes of in; a revert restores the other nodes
	dropsState     bool     // whether the policy is drop
	target         *applied // target of a revert
	pin            *node    // node of the event, for a pin, an unpin, or a revert of a pin or unpin
	isPin          bool     // whether the patch is a pin
}

// commit applies step s of a patch. Only the fields seq, id and group of name are set.
func (r *Reference) commit(s step, name applied) *applied {
	a := &name
	a.step = s
	a.after = nil
	for _, n := range s.in[:s.newCount] {
		n.insertedBy = a
	}
	r.nodes = s.after
	r.applied = append(r.applied, a)
	return a
}

func (r *Reference) clone() *Reference {
	return &Reference{r.initial, slices.Clone(r.log), slices.Clone(r.nodes), slices.Clone(r.applied), slices.Clone(r.skipped)}
}

// step returns the effect of a patch. If the patch must be skipped, step returns the reason. For a blocked
// revert, step also returns the patch that blocks it.
func (r *Reference) step(p *patch.PatchEvent) (s step, skip string, blocking *applied) {
	if err := p.Validate(); err != nil {
		var defect *patch.FieldError
		errors.As(err, &defect)
		return step{}, string(defect.Flaw), nil
	}
	switch p.Type() {
	case patch.Erase:
		return step{after: r.nodes}, "", nil
	case patch.Revert:
		target := r.findPatch(p.PatchID())
		if target == nil {
			return step{}, PatchNotFound, nil
		}
		return r.revertStep(target)
	case patch.Pin, patch.Unpin:
		i := r.indexOfID(p.EventID())
		if i < 0 {
			return step{}, NotFound, nil
		}
		return step{after: r.nodes, pin: r.visible()[i], isPin: p.Type() == patch.Pin}, "", nil
	}
	start, count, reason := r.span(p)
	if reason != "" {
		return step{}, reason, nil
	}
	return r.spliced(p, start, count), "", nil
}

// indexOfID returns the index of the first visible event with the id, or -1.
func (r *Reference) indexOfID(id string) int {
	return slices.IndexFunc(r.visible(), func(n *node) bool { return n.event.ID() == id })
}

// spliced returns the effect of p on the assumption that p removes the visible events with indices in [start,
// start+count).
func (r *Reference) spliced(p *patch.PatchEvent, start, count int) step {
	from, to := r.run(p, start, count)
	inserted := newNodes(p)
	if len(inserted) == 0 {
		inserted = []*node{{}}
	}
	if p.StatePolicy() == patch.Keep {
		inserted[0].carriedState = net(nil, r.nodes[from:to])
	}
	return step{
		after: slices.Concat(r.nodes[:from], inserted, r.nodes[to:]), in: inserted, out: slices.Clone(r.nodes[from:to]),
		newCount: len(inserted), dropsState: p.StatePolicy() == patch.Drop,
	}
}

// span returns the visible events that a well-formed patch removes, or the reason to skip the patch.
func (r *Reference) span(p *patch.PatchEvent) (start, count int, reason string) {
	visible := r.visible()
	if p.Type() == patch.TruncateBefore {
		if i := r.indexOfID(p.EventID()); i >= 0 {
			return 0, i, ""
		}
		return 0, 0, NotFound
	}
	start, count = p.Start(), p.Count()
	switch {
	case start < 0, count < 0,
		start > len(visible), count > len(visible)-start, // the sum start+count could overflow
		count == 0 && p.Type() == patch.Summarise:
		return 0, 0, OutOfRange
	}
	return start, count, ""
}

// run returns the range [from, to) of nodes that a patch removes. It goes from the node of V[start] to the node
// of V[start+count-1], and includes the markers between them. A truncate_before removes all nodes before its
// event.
func (r *Reference) run(p *patch.PatchEvent, start, count int) (from, to int) {
	visible := r.visible()
	at := func(i int) int { return slices.Index(r.nodes, visible[i]) }
	switch {
	case p.Type() == patch.TruncateBefore:
		return 0, at(count) // includes the markers
	case count > 0:
		return at(start), at(start+count-1) + 1
	case start < len(visible):
		return at(start), at(start)
	default:
		return len(r.nodes), len(r.nodes)
	}
}

// newNodes returns the visible nodes that a patch inserts.
func newNodes(p *patch.PatchEvent) []*node {
	var nodes []*node
	for _, e := range p.NewEvents() {
		nodes = append(nodes, &node{event: e, fromSummarise: p.Type() == patch.Summarise})
	}
	return nodes
}

// net returns the given state as it is after the nodes. For each node in order, it applies the delta that the node
// carries, and then the node's own delta. It does not change the given map.
func net(state map[string]patch.Value, nodes []*node) map[string]patch.Value {
	out := map[string]patch.Value{}
	maps.Copy(out, state)
	for _, n := range nodes {
		maps.Copy(out, n.carriedState)
		if n.event == nil {
			continue
		}
		for c := range n.event.Changes() {
			out[c.Key] = c.Value
		}
	}
	return out
}

func (r *Reference) visible() []*node { return visibleOf(r.nodes) }

func visibleOf(nodes []*node) []*node {
	return filter(nodes, func(n *node) bool { return n.event != nil })
}

// filter returns a new slice with the elements for which accept returns true.
func filter[T any](all []T, accept func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !accept(one) })
}

func eventsOf(nodes []*node) (events []*patch.Event) {
	for _, n := range nodes {
		events = append(events, n.event)
	}
	return events
}

// Visible returns the visible log. The caller owns the slice.
func (r *Reference) Visible() []*patch.Event { return eventsOf(r.visible()) }

// State returns the session's state without shared keys. It is the initial state, changed by the deltas that count.
// The caller owns the map.
func (r *Reference) State() map[string]patch.Value {
	return net(r.initial, r.nodes)
}

// Seq returns the seq of the newest record, or 0.
func (r *Reference) Seq() uint64 {
	if len(r.log) == 0 {
		return 0
	}
	return r.log[len(r.log)-1].Seq
}

// PatchSeq returns the seq of the newest patch, including skipped patches, or 0.
func (r *Reference) PatchSeq() uint64 {
	for _, rec := range slices.Backward(r.log) {
		if rec.Patch != nil {
			return rec.Seq
		}
	}
	return 0
}

// Skipped returns the patches that could not be applied, in log order. The caller owns the slice.
func (r *Reference) Skipped() []patch.Skip { return slices.Clone(r.skipped) }

// newestInvocation returns the invocation of the newest appended event that has an invocation, or "".
func (r *Reference) newestInvocation() string {
	for _, rec := range slices.Backward(r.log) {
		if rec.Event != nil && rec.Event.InvocationID() != "" {
			return rec.Event.InvocationID()
		}
	}
	return ""
}
