package fold

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// MissingRecordsError names records of the log that a view needs but does not contain. It does not mean that
// the patch is accepted or refused. The caller reads the records, supplies them with [View.WithRecords], and
// repeats the call.
type MissingRecordsError struct {
	// Seqs are the seqs of the records to supply, in ascending order. They include needed records that were
	// already supplied.
	Seqs []uint64
}

func (e *MissingRecordsError) Error() string {
	return fmt.Sprintf("the view needs %d records, from record %d on; supply them with WithRecords", len(e.Seqs), e.Seqs[0])
}

// suppliedRecords are the records supplied with [View.WithRecords], in seq order.
type suppliedRecords []patch.Record

// WithRecords returns the view with the given records of its log. These records replace the records supplied
// earlier. With them, the view can check and apply patches that need records; see [MissingRecordsError]. A view
// that [View.Apply] returns has no supplied records. The records may be in any order. The caller must not
// change the slice while the view is in use.
func (v View) WithRecords(records []patch.Record) View {
	bySeq := func(a, b patch.Record) int { return cmp.Compare(a.Seq, b.Seq) }
	if !slices.IsSortedFunc(records, bySeq) {
		records = slices.SortedStableFunc(slices.Values(records), bySeq)
	}
	v.supplied = records
	return v
}

// event returns an event of a supplied record, or nil if the record was not supplied. If the record has no such
// event, the error matches [patch.ErrCorrupt].
func (h suppliedRecords) event(id nodeID) (*patch.Event, error) {
	i, ok := slices.BinarySearchFunc(h, id.seq, func(r patch.Record, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	if !ok {
		return nil, nil
	}
	switch r := h[i]; {
	case r.Event != nil && id.index == 0:
		return r.Event, nil
	case r.Patch != nil:
		if events := r.Patch.NewEvents(); int(id.index) < len(events) {
			return events[id.index], nil
		}
	}
	return nil, fmt.Errorf("%w: record %d has no event %d", patch.ErrCorrupt, id.seq, id.index)
}

// missingRecords collects the records that an operation needs, so that one error names all of them.
type missingRecords struct {
	seqs       []uint64 // includes supplied records, which the next attempt also needs
	incomplete bool     // whether a record was not supplied
}

// event returns an event of a supplied record, or nil if the record was not supplied. It returns the same
// errors as [suppliedRecords.event].
func (m *missingRecords) event(from suppliedRecords, id nodeID) (*patch.Event, error) {
	e, err := from.event(id)
	m.seqs = append(m.seqs, id.seq)
	m.incomplete = m.incomplete || e == nil && err == nil
	return e, err
}

// errorUpTo returns a *[MissingRecordsError] for the needed records with seqs up to the argument last. If all
// records were supplied, it returns nil.
func (m *missingRecords) errorUpTo(last uint64) error {
	if !m.incomplete {
		return nil
	}
	slices.Sort(m.seqs)
	seqs := slices.DeleteFunc(slices.Compact(m.seqs), func(seq uint64) bool { return seq > last })
	return &MissingRecordsError{Seqs: seqs}
}

// placeholderEvent is the placeholder for a missing event while patches are planned.
var placeholderEvent = func() *patch.Event {
	e, err := patch.NewEvent(patch.Fields{})
	if err != nil {
		panic(err)
	}
	return e
}()

// withEvents returns a run's nodes with their events. While several patches are planned, it collects the
// missing events and continues with placeholders. One error can then name the records that all patches need.
func (v *View) withEvents(r *run) ([]node, error) {
	missing := v.missing
	if missing == nil {
		missing = &missingRecords{}
	}
	nodes := slices.AppendSeq(make([]node, 0, r.len()), r.each)
	for i := range nodes {
		n := &nodes[i]
		if n.isMarker() {
			continue
		}
		var err error
		if n.event, err = missing.event(v.supplied, n.id()); err != nil {
			return nil, err
		}
		if n.event == nil {
			n.event = placeholderEvent
		}
	}
	if v.missing == nil {
		if err := missing.errorUpTo(v.seq); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}
