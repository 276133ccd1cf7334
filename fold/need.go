package fold

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// NeedError says which records a view must be given before it can answer: records of its log
// that it does not hold. It says nothing of the patch that was asked about. The
// caller reads them from the log, gives them to the view ([View.With]), and repeats the call.
type NeedError struct {
	// Seqs are the records to hand in by [View.With], ascending; those at hand that are
	// needed are among them.
	Seqs []uint64
}

func (e *NeedError) Error() string {
	return fmt.Sprintf("the view lacks %d records, from record %d on; hand them in", len(e.Seqs), e.Seqs[0])
}

// hand is records that were handed in, by ascending seq.
type hand []patch.Record

// With returns the view with records of its log at hand, in place of those that were, for
// judging and applying patches that need them: see [NeedError]. The view that [View.Apply]
// gives has none at hand. The records may come in any order; the caller must not change the slice while the
// view is in use.
func (v View) With(records []patch.Record) View {
	bySeq := func(a, b patch.Record) int { return cmp.Compare(a.Seq, b.Seq) }
	if !slices.IsSortedFunc(records, bySeq) {
		records = slices.SortedStableFunc(slices.Values(records), bySeq)
	}
	v.hand = records
	return v
}

// event returns an event of a record at hand, or nil if the record is not there. The
// error matches [patch.ErrCorrupt] if the record has no such event.
func (h hand) event(seq uint64, index int32) (*patch.Event, error) {
	i, ok := slices.BinarySearchFunc(h, seq, func(r patch.Record, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	if !ok {
		return nil, nil
	}
	switch r := h[i]; {
	case r.Event != nil && index == 0:
		return r.Event, nil
	case r.Patch != nil:
		if events := r.Patch.NewEvents(); int(index) < len(events) {
			return events[index], nil
		}
	}
	return nil, fmt.Errorf("%w: record %d has no event %d", patch.ErrCorrupt, seq, index)
}

// Outline returns the view of a session without records as one of outlines: of all events,
// it, and the views made from it, keep only what they do to the state and which records hold them
// ([patch.Event.Outline]). Such a view takes a few dozen bytes for an event. It is to fold logs
// that are too long to be held, not to be read or to make patches from. A patch that names an event
// finds it if the event's record is at hand ([View.With]), else it is skipped.
func (v View) Outline() View {
	v.outline = true
	return v
}

// kept returns what the view keeps of an event.
func (v *View) kept(e *patch.Event) *patch.Event {
	if v.outline && e != nil {
		return e.Outline()
	}
	return e
}

// needs collects what a plan would have to read. The plan goes on without the bodies, so
// that what several of its patches need is known at once.
type needs struct {
	seqs  []uint64 // those at hand too, which the next call needs again
	lacks bool     // some are not at hand
}

// upTo returns what a log that ends with the record last must hand in, or nil if the plan
// had all at hand.
func (n *needs) upTo(last uint64) error {
	if !n.lacks {
		return nil
	}
	slices.Sort(n.seqs)
	seqs := slices.DeleteFunc(slices.Compact(n.seqs), func(seq uint64) bool { return seq > last })
	return &NeedError{Seqs: seqs}
}

// unread stands in a plan for the body of an event that is not at hand.
var unread = func() *patch.Event {
	e, err := patch.NewEvent(patch.Fields{})
	if err != nil {
		panic(err)
	}
	return e
}()

// bodies returns a run's nodes with their events, or, in a plan, with placeholders.
func (v *View) bodies(r *run) ([]node, error) {
	nodes, all, err := r.with(v.hand)
	switch {
	case err != nil:
		return nil, err
	case v.plan != nil:
		v.plan.seqs = append(v.plan.seqs, r.seqs()...)
		v.plan.lacks = v.plan.lacks || !all
		for i := range nodes {
			if nodes[i].event == nil && !nodes[i].isMarker() {
				nodes[i].event = unread
			}
		}
	case !all:
		return nil, &NeedError{Seqs: r.seqs()}
	}
	return nodes, nil
}
