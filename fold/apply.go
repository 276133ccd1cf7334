package fold

import (
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Apply returns the view after more records, in their order. Whatever they say, it is
// total: a patch that cannot be applied is listed in [View.Skipped] and changes
// nothing else but Seq and PatchSeq. The error matches [ErrSeq] if the records do not follow the
// view and each other without a gap; the view is v then. It is a *[NeedError] if one of them is a
// revert, and what it brings back is neither at hand nor among the records; the view then stands before it, and applying
// can go on from there.
func (v View) Apply(records ...patch.Record) (View, error) {
	if len(records) == 1 {
		next, err := v.apply(records[0])
		next.hand = nil
		return next, err
	}
	if len(records) == 0 {
		return v, nil
	}
	f := folding{view: v, own: &owner{}}
	if slices.ContainsFunc(records, func(r patch.Record) bool { return r.Patch != nil && r.Patch.Type() == patch.Revert }) {
		f.view.hand = slices.Concat(v.hand, records)
	}
	var err error
	for _, r := range records {
		if err = f.record(r); err != nil {
			break
		}
	}
	if err != nil && !errors.As(err, new(*NeedError)) {
		return v, err
	}
	f.flush()
	return f.view.fresh(), err
}

// apply is Apply of one record, but the view keeps what it has at hand.
func (v View) apply(r patch.Record) (View, error) {
	f := folding{view: v}
	if err := f.record(r); err != nil {
		return v, err
	}
	f.flush()
	return f.view.derived(v, r.Event), nil
}

// edited returns the view after a patch that does the edit.
func (v View) edited(e edit) View {
	f := folding{view: v}
	_ = f.view.load() // which [View.check] has done
	f.edit(e, v.seq+1)
	return f.view.derived(v, nil)
}

// derived gives a view the caches of the one before it, as far as they hold. event is
// the one appended event, or nil after any other change.
func (v View) derived(before View, event *patch.Event) View {
	v.pairs = &pairingCache{}
	if event != nil {
		var ok bool
		if v.state, ok = before.state.then(event); ok {
			return v
		}
	} else if v.nodes == before.nodes && v.state != nil {
		return v
	}
	return v.withState()
}

// folding is a fold under way: a view, and events that its sequence has still to get.
// Adding them in one go is what makes long folds cheap.
type folding struct {
	view    View
	own     *owner // nil for a single record, which has nothing to change twice
	pending []node
	made    []node // the room for the nodes of a patch
}

func (f *folding) record(r patch.Record) error {
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
		f.pending = append(f.pending, node{event: v.kept(r.Event), seq: r.Seq})
	case r.Patch != nil:
		f.flush()
		if err := v.load(); err != nil {
			return err
		}
		e, err := v.edit(r.Patch)
		if err == nil {
			f.edit(e, r.Seq)
			return nil
		}
		if errors.As(err, new(*NeedError)) || errors.Is(err, patch.ErrCorrupt) {
			return err
		}
		v.seq, v.patchSeq = r.Seq, r.Seq
		v.skip(reasonOf(err))
	default:
		return fmt.Errorf("%w: record %d holds neither event nor patch", patch.ErrInvalid, r.Seq)
	}
	return nil
}

// edit does what the patch with the seq does.
func (f *folding) edit(e edit, seq uint64) {
	v := &f.view
	v.seq, v.patchSeq = seq, seq
	if e.isReceipt() {
		return
	}
	c := newCut(v, e, seq)
	if e.pin == nil {
		f.made = e.nodes(f.made[:0], c)
		for i := range f.made {
			f.made[i].event = v.kept(f.made[i].event)
		}
		v.nodes = v.nodes.splice(f.own, e.lo, e.hi, f.made)
	} else {
		v.pins = v.pins.with(*e.pin)
	}
	v.patches = c.after(v.patches)
	v.held += c.footprint()
}

func (f *folding) flush() {
	n := f.view.nodes.len()
	f.view.nodes = f.view.nodes.splice(f.own, n, n, f.pending)
	f.pending = f.pending[:0] // the sequence has copies
}

func (v *View) skip(reason patch.Flaw) {
	v.unknown = v.unknown || reason == patch.UnknownType
	v.skipped = &skipList{skip: patch.Skip{Seq: v.seq, Reason: reason}, older: v.skipped, len: v.skipped.count() + 1}
}

func reasonOf(err error) patch.Flaw {
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

// edit is what a patch does to a view's sequence. Check and Apply both go by it.
type edit struct {
	patch      *patch.PatchEvent
	first, end int // the visible events that it removes
	lo, hi     int // the nodes that it removes

	target *cut   // of a revert: the patch that it takes back
	back   []node // and what that had taken out

	pin *pinChange // of a pin, an unpin, and the revert of one, which remove nothing
}

// edit finds out what a patch does, or why it cannot be applied. A splice and a summarise take out
// the nodes from that of V[start] to that of V[start+count-1], with the markers between them; of
// count 0 none, directly before the node of V[start]. A truncate_before takes out all nodes before
// that of its event. In their place come the events that the patch has, or else one marker. An
// error that is a *[NeedError] leaves open whether it can be applied.
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
			return edit{}, notVisible(p)
		}
		_, e.hi = v.nodes.at(i)
		e.end = i
		return e, nil
	}
	start, count, n := p.Start(), p.Count(), v.Len()
	switch {
	case start < 0:
		return edit{}, fmt.Errorf("%w: start is %d, below 0", ErrOutOfRange, start)
	case count < 0:
		return edit{}, fmt.Errorf("%w: count is %d, below 0", ErrOutOfRange, count)
	case start > n || count > n-start:
		return edit{}, fmt.Errorf("%w: start %d and count %d, but only %d events are visible", ErrOutOfRange, start, count, n)
	case count == 0 && p.Type() == patch.Summarise:
		return edit{}, fmt.Errorf("%w: count is 0, but a summary stands for at least one event", ErrOutOfRange)
	}
	e.first, e.end = start, start+count
	switch {
	case count > 0:
		_, e.lo = v.nodes.at(start)
		_, last := v.nodes.at(start + count - 1)
		e.hi = last + 1
	case start < n:
		_, e.lo = v.nodes.at(start)
		e.hi = e.lo
	default:
		e.lo = v.nodes.len()
		e.hi = e.lo
	}
	return e, nil
}

// nodes appends what the patch of the cut puts in: its events, or a marker; a revert's
// marker and what it brings back.
func (e edit) nodes(nodes []node, c *cut) []node {
	if e.target != nil {
		return append(append(nodes, node{seq: c.seq, cut: c}), e.back...)
	}
	nodes = e.appendNew(nodes)
	if c.puts = len(nodes) > 0; !c.puts {
		nodes = append(nodes, node{})
	}
	c.made = int32(len(nodes))
	for i := range nodes {
		nodes[i].seq, nodes[i].index, nodes[i].cut = c.seq, int32(i), c
	}
	if c.out.hasEvents() {
		c.standIns = standInsOf(nodes)
	}
	return nodes
}

// appendNew appends nodes of the patch's own events.
func (e edit) appendNew(nodes []node) []node {
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

// added returns the visible nodes that the patch puts in; only those that a revert brings
// back say where they come from.
func (e edit) added() []node {
	if e.target != nil {
		return slices.DeleteFunc(slices.Clone(e.back), func(n node) bool { return n.event == nil })
	}
	return e.appendNew(nil)
}
