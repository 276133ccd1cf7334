package fold

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// MissingRecordsError names records of the log that a view needs and does not hold. It does not judge the patch in
// question. The caller reads the records from the log, supplies them ([View.WithRecords]), and repeats the call.
type MissingRecordsError struct {
	// Seqs are the records to supply, ascending. They include needed ones that were supplied before.
	Seqs []uint64
}

func (e *MissingRecordsError) Error() string {
	return fmt.Sprintf("the view lacks %d records, from record %d on; supply them", len(e.Seqs), e.Seqs[0])
}

// suppliedRecords are the records of [View.WithRecords], by ascending seq.
type suppliedRecords []patch.Record

// WithRecords returns the view with the given records of its log, in place of earlier ones, so that it can
// check and apply patches that need them: see [MissingRecordsError]. [View.Apply] returns a view without
// any. The records may come in any order; the caller must not change the slice while the view is in use.
func (v View) WithRecords(records []patch.Record) View {
	bySeq := func(a, b patch.Record) int { return cmp.Compare(a.Seq, b.Seq) }
	if !slices.IsSortedFunc(records, bySeq) {
		records = slices.SortedStableFunc(slices.Values(records), bySeq)
	}
	v.supplied = records
	return v
}

// event returns an event of a supplied record, or nil if the record was not supplied. The error matches
// [patch.ErrCorrupt] if the record has no such event.
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

// missingRecords collects the records that an answer depends on, so that one error names them all.
type missingRecords struct {
	seqs  []uint64 // supplied ones too: the next call needs them again
	lacks bool     // some were not supplied
}

// event returns an event of a supplied record, or nil if the record was not supplied. The error is as that of
// [suppliedRecords.event].
func (m *missingRecords) event(from suppliedRecords, id nodeID) (*patch.Event, error) {
	e, err := from.event(id)
	m.seqs = append(m.seqs, id.seq)
	m.lacks = m.lacks || e == nil && err == nil
	return e, err
}

// errorUpTo returns a *[MissingRecordsError] for the records up to last, or nil if all were supplied.
func (m *missingRecords) errorUpTo(last uint64) error {
	if !m.lacks {
		return nil
	}
	slices.Sort(m.seqs)
	seqs := slices.DeleteFunc(slices.Compact(m.seqs), func(seq uint64) bool { return seq > last })
	return &MissingRecordsError{Seqs: seqs}
}

// unread is the placeholder in a plan for a missing event.
var unread = func() *patch.Event {
	e, err := patch.NewEvent(patch.Fields{})
	if err != nil {
		panic(err)
	}
	return e
}()

// withEvents returns a run's nodes with their events. A plan notes the missing ones and goes on with
// placeholders, so that one error names what several of its patches need.
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
			n.event = unread
		}
	}
	if v.missing == nil {
		if err := missing.errorUpTo(v.seq); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}
