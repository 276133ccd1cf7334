package fold

import (
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Apply returns the view after the given records, in order. A patch that cannot be applied is listed in
// [View.Skipped]. It changes only Seq and PatchSeq. If the seqs of the records do not directly follow the
// view's seq, the error matches [ErrSeq], and the result is v.
//
// A revert may need events that are neither among the records nor supplied with [View.WithRecords]. The error
// is then a *[MissingRecordsError], and the result is the view before the revert. The caller can continue with
// that view.
func (v View) Apply(records ...patch.Record) (View, error) {
	if len(records) == 1 {
		next, err := v.apply(records[0])
		next.supplied = nil
		return next, err
	}
	if len(records) == 0 {
		return v, nil
	}
	f := applier{view: v, own: &owner{}}
	if slices.ContainsFunc(records, func(r patch.Record) bool { return r.Patch != nil && r.Patch.Type() == patch.Revert }) {
		f.view.supplied = slices.Concat(v.supplied, records)
	}
	var err error
	for _, r := range records {
		if err = f.addRecord(r); err != nil {
			break
		}
	}
	if err != nil && !errors.As(err, new(*MissingRecordsError)) {
		return v, err
	}
	f.flush()
	return f.view.withNewCaches(), err
}

// apply is Apply for one record. The result keeps the supplied records.
func (v View) apply(r patch.Record) (View, error) {
	f := applier{view: v}
	if err := f.addRecord(r); err != nil {
		return v, err
	}
	f.flush()
	return f.view.withCachesOf(v, r.Event), nil
}

// applyEdit returns the view after a patch with the given edit.
func (v View) applyEdit(e edit) View {
	f := applier{view: v}
	_ = f.view.load() // cannot fail, because [View.check] has loaded the view
	f.applyEdit(e, v.seq+1)
	return f.view.withCachesOf(v, nil)
}

// withCachesOf returns the view with the caches of its predecessor, as far as they are still valid. The
// argument event is the appended event, or nil if the change was a patch.
func (v View) withCachesOf(before View, event *patch.Event) View {
	v.pairs = &pairingCache{}
	if event != nil {
		var ok bool
		if v.state, ok = before.state.withEvent(event); ok {
			return v
		}
	} else if v.nodes == before.nodes && v.state != nil {
		return v
	}
	return v.withState()
}

// applier is a fold in progress. It consists of a view and of events that are not yet in the view's sequence.
// Long folds are cheap because these events are added in batches.
type applier struct {
	view     View
	own      *owner // nil if the fold has only one record
	pending  []node
	newNodes []node // buffer for the nodes of a patch
}

func (f *applier) addRecord(r patch.Record) error {
	v := &f.view
	if r.Seq != v.seq+1 {
		return fmt.Errorf("%w: record %d after record %d", ErrSeq, r.Seq, v.seq)
	}
	switch {
	case r.Event != nil:
		v.seq = r.Seq
		if id := r.Event.InvocationID(); id != "" {
			v.invocation = id
		}
		f.pending = append(f.pending, node{event: r.Event, seq: r.Seq})
	case r.Patch != nil:
		f.flush()
		if err := v.load(); err != nil {
			return err
		}
		e, err := v.edit(r.Patch)
		if err == nil {
			f.applyEdit(e, r.Seq)
			return nil
		}
		if errors.As(err, new(*MissingRecordsError)) || errors.Is(err, patch.ErrCorrupt) {
			return err
		}
		v.seq, v.patchSeq = r.Seq, r.Seq
		v.addSkip(skipReason(err))
	default:
		return fmt.Errorf("%w: record %d has neither an event nor a patch", patch.ErrInvalid, r.Seq)
	}
	return nil
}

func (f *applier) applyEdit(e edit, seq uint64) {
	v := &f.view
	v.seq, v.patchSeq = seq, seq
	if e.isReceipt() {
		return
	}
	c := newCut(v, e, seq)
	if e.pin == nil {
		f.newNodes = e.appendNodes(f.newNodes[:0], c)
		v.nodes = v.nodes.splice(f.own, e.lo, e.hi, f.newNodes)
	} else {
		v.pins = v.pins.with(*e.pin)
	}
	v.patches = c.prependTo(v.patches)
	v.patchBytes += c.footprint()
}

func (f *applier) flush() {
	n := f.view.nodes.len()
	f.view.nodes = f.view.nodes.splice(f.own, n, n, f.pending)
	f.pending = f.pending[:0] // the sequence has copied the nodes
}

func (v *View) addSkip(reason patch.Flaw) {
	v.hasUnknownPatch = v.hasUnknownPatch || reason == patch.UnknownType
	v.skipped = &skipList{skip: patch.Skip{Seq: v.seq, Reason: reason}, older: v.skipped, len: v.skipped.count() + 1}
}

func skipReason(err error) patch.Flaw {
	var defect *patch.FieldError
	switch {
	case errors.As(err, &defect):
		return defect.Flaw
	case errors.Is(err, ErrEventNotFound):
		return patch.EventNotFound
	case errors.Is(err, errBlocked):
		return patch.RevertBlocked
	default:
		return patch.OutOfRange
	}
}

// edit is the effect of a patch on a view's sequence. Check and Apply both use it.
type edit struct {
	patch      *patch.PatchEvent
	first, end int // range of visible events that the patch removes
	lo, hi     int // range of nodes that the patch removes

	target   *cut   // for a revert: the patch that it reverts
	restored []node // for a revert: the nodes that the target removed

	pin *pinChange // for a pin, an unpin, or the revert of either: the change of pins; such a patch removes no nodes
}

// edit returns the effect of a patch. If the patch cannot be applied, it returns the reason as an error. A
// *[MissingRecordsError] does not mean that the patch cannot be applied.
//
//   - A splice or summarise removes the nodes from V[start] to V[start+count-1], with the markers between them.
//     If count is 0, it removes nothing, and its position is directly before V[start].
//   - A truncate_before removes all nodes before its event.
//   - The patch's events replace the removed nodes. If the patch has no events, a marker replaces them.
func (v *View) edit(p *patch.PatchEvent) (edit, error) {
	if err := p.Validate(); err != nil {
		return edit{}, err
	}
	switch p.Type() {
	case patch.Revert:
		return v.revertEdit(p)
	case patch.Pin, patch.Unpin:
		return v.pinEdit(p)
	case patch.Erase:
		n := v.Len()
		return edit{patch: p, first: n, end: n}, nil
	}
	e := edit{patch: p}
	if p.Type() == patch.TruncateBefore {
		i, ok := v.Find(p.EventID())
		if !ok {
			return edit{}, eventNotVisible(p)
		}
		_, e.hi = v.nodes.visibleAt(i)
		e.end = i
		return e, nil
	}
	start, count, n := p.Start(), p.Count(), v.Len()
	switch {
	case start < 0:
		return edit{}, fmt.Errorf("%w: start is %d; it must not be negative", ErrOutOfRange, start)
	case count < 0:
		return edit{}, fmt.Errorf("%w: count is %d; it must not be negative", ErrOutOfRange, count)
	case start > n || count > n-start:
		return edit{}, fmt.Errorf("%w: start %d and count %d, but the visible log has length %d", ErrOutOfRange, start, count, n)
	case count == 0 && p.Type() == patch.Summarise:
		return edit{}, fmt.Errorf("%w: count is 0, but a summary covers at least one event", ErrOutOfRange)
	}
	e.first, e.end = start, start+count
	switch {
	case count > 0:
		_, e.lo = v.nodes.visibleAt(start)
		_, last := v.nodes.visibleAt(start + count - 1)
		e.hi = last + 1
	case start < n:
		_, e.lo = v.nodes.visibleAt(start)
		e.hi = e.lo
	default:
		e.lo = v.nodes.len()
		e.hi = e.lo
	}
	return e, nil
}

// appendNodes appends the nodes that the patch adds: its events, or a marker if it has none. A revert adds a marker
// and the nodes that it restores.
func (e edit) appendNodes(nodes []node, c *cut) []node {
	if e.target != nil {
		return append(append(nodes, node{seq: c.seq, cut: c}), e.restored...)
	}
	nodes = e.appendEvents(nodes)
	if c.addsEvents = len(nodes) > 0; !c.addsEvents {
		nodes = append(nodes, node{})
	}
	c.nodeCount = int32(len(nodes))
	for i := range nodes {
		nodes[i].seq, nodes[i].index, nodes[i].cut = c.seq, int32(i), c
	}
	if c.removed.hasEvents() {
		c.standIns = standInsOf(nodes)
	}
	return nodes
}

// appendEvents appends nodes for the events of the patch itself.
func (e edit) appendEvents(nodes []node) []node {
	switch e.patch.Type() {
	case patch.Splice:
		for _, event := range e.patch.NewEvents() {
			nodes = append(nodes, node{event: event})
		}
	case patch.Summarise:
		nodes = append(nodes, node{event: e.patch.NewEvents()[0], summary: true})
	}
	return nodes
}

// added returns the visible nodes that the patch adds. Nodes have ids only if a revert restores them.
func (e edit) added() []node {
	if e.target != nil {
		return slices.DeleteFunc(slices.Clone(e.restored), func(n node) bool { return n.event == nil })
	}
	return e.appendEvents(nil)
}
