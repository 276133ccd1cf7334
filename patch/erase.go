package patch

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// ValuePolicy determines what an erasure does to the state values that an erased event set.
type ValuePolicy string

// The value policies.
const (
	KeepValues ValuePolicy = "keep" // keep the values; the state does not change
	NullValues ValuePolicy = "null" // replace the values with null
)

// SummaryPolicy determines what an erasure does to summaries and copies of the erased events.
type SummaryPolicy string

// The summary policies.
const (
	RevertSummaries SummaryPolicy = ""      // erase the content of summaries and copies, and revert visible summaries
	BlankSummaries  SummaryPolicy = "blank" // erase the content of summaries and copies
	KeepSummaries   SummaryPolicy = "keep"  // leave summaries and copies unchanged
)

// Span is the range of records with seqs from From to To, inclusive.
type Span struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Erasure is the content of a receipt. It says what an erase removed, and why. A receipt is a patch of type
// [Erase]. The author and the time of the receipt say who erased the content, and when.
type Erasure struct {
	// Seqs lists the records from which content was erased, in ascending order and without overlaps.
	Seqs []Span

	// EventIndices has an entry for each patch that lost only some of its events. The key is the patch's seq.
	// The value contains the indices of the erased events in [PatchEvent.NewEvents], in ascending order. If the
	// value is empty, only other fields of the patch were erased.
	EventIndices map[uint64][]int

	// Summaries is the policy for summaries and copies of the erased events.
	Summaries SummaryPolicy

	// ClosedAt is 0 until the erasure is complete. It is then the seq of the last record before the closing
	// commit. Authors of later patches have not seen the erased content.
	ClosedAt uint64

	// Values is the policy for state values that the erased events set.
	Values ValuePolicy

	// Initial lists the erased keys of the session's initial state, in ascending order. Their values are null.
	Initial []string

	// Reason is the reason that the author gave.
	Reason string

	// An erase is a call on one session. It logs a receipt in each session that contains the records. CallID is
	// the id of the call, and CallSession is the creation id of the call's session. Session is the creation id
	// of the session in which this receipt was logged. A fork or another copy of that session inherits the
	// receipt, which counts as closed there.
	CallID, CallSession, Session string

	// Seen is the seq of the last record that was searched for copies and summaries of the selected events.
	Seen uint64

	// Context and MaxGrowth are options of the call; see store.EraseOptions.
	Context   bool
	MaxGrowth int

	// ForUser says that the call is one of the calls that erase a user. OfUser says that the call is the first
	// of these calls. The first call completes last.
	ForUser, OfUser bool

	// Done says that the call is complete in all sessions. Only the receipt in the call's session has Done set.
	Done bool
}

func (e Erasure) covers(seq uint64) bool {
	i, _ := slices.BinarySearchFunc(e.Seqs, seq, func(s Span, seq uint64) int {
		if s.To < seq {
			return -1
		}
		return 1
	})
	return i < len(e.Seqs) && e.Seqs[i].From <= seq
}

// CoversEvent reports whether the receipt covers an event. The arguments are the seq of the event's record, and
// the event's index in [Record.Events]. The index -1 stands for the other fields of a patch.
func (e Erasure) CoversEvent(seq uint64, index int) bool {
	indices, isListed := e.EventIndices[seq]
	return e.covers(seq) && (!isListed || index < 0 || slices.Contains(indices, index))
}

// Names of a receipt's fields, and descriptions of valid values.
const (
	eraseSeqs        = "seqs"
	eraseWithin      = "within"
	eraseSummaries   = "summaries"
	eraseValues      = "values"
	eraseInitial     = "initial"
	eraseReason      = "reason"
	eraseClosed      = "closed"
	eraseCall        = "call"
	eraseCallSession = "callSession"
	eraseSession     = "session"
	eraseSeen        = "seen"
	eraseContext     = "context"
	eraseMaxGrowth   = "maxGrowth"
	eraseForUser     = "forUser"
	eraseOfUser      = "ofUser"
	eraseDone        = "done"

	wantSummaries = `"blank", "keep", or none`
	wantValues    = `"keep" or "null"`
)

// NewErase returns a receipt, which documents an erasure. A receipt does not change the visible log or the
// state, has no state policy, and cannot be reverted.
func NewErase(e Erasure) *PatchEvent {
	seqs := make([][]uint64, len(e.Seqs))
	for i, s := range e.Seqs {
		seqs[i] = []uint64{s.From, s.To}
	}
	var within [][]uint64
	for _, seq := range slices.Sorted(maps.Keys(e.EventIndices)) {
		row := []uint64{seq}
		for _, i := range e.EventIndices[seq] {
			row = append(row, uint64(i))
		}
		within = append(within, row)
	}
	p := &PatchEvent{typ: Erase}
	text, err := json.Marshal(struct {
		Seqs        [][]uint64    `json:"seqs"`
		Within      [][]uint64    `json:"within,omitempty"`
		Summaries   SummaryPolicy `json:"summaries,omitempty"`
		Values      ValuePolicy   `json:"values,omitempty"`
		Initial     []string      `json:"initial,omitempty"`
		Reason      string        `json:"reason,omitempty"`
		Closed      uint64        `json:"closed,omitzero"`
		Call        string        `json:"call,omitempty"`
		CallSession string        `json:"callSession,omitempty"`
		Session     string        `json:"session,omitempty"`
		Seen        uint64        `json:"seen,omitzero"`
		Context     bool          `json:"context,omitzero"`
		MaxGrowth   int           `json:"maxGrowth,omitzero"`
		ForUser     bool          `json:"forUser,omitzero"`
		OfUser      bool          `json:"ofUser,omitzero"`
		Done        bool          `json:"done,omitzero"`
	}{seqs, within, e.Summaries, e.Values, e.Initial, e.Reason, e.ClosedAt, e.CallID, e.CallSession, e.Session, e.Seen, e.Context, e.MaxGrowth,
		e.ForUser, e.OfUser, e.Done}, plainJSON)
	if p.json = text; err != nil { // text that is not UTF-8; Validate refuses the patch
		at := jsonError(err)
		p.defect = &FieldError{at.Field, at.Problem, WrongField}
	}
	return p
}

// Erasure returns the content of a receipt. If the patch is not a well-formed receipt, ok is false.
func (p *PatchEvent) Erasure() (e Erasure, ok bool) {
	if p.typ != Erase {
		return Erasure{}, false
	}
	e, d := p.parseErasure()
	return e, d == nil
}

func (p *PatchEvent) parseErasure() (e Erasure, d *FieldError) {
	wrongField := func(name, want string) *FieldError {
		return &FieldError{name, "want " + want + ", not " + clip(p.field(name)), WrongField}
	}
	if p.field(eraseSeqs) == nil {
		return e, &FieldError{eraseSeqs, "a patch of type erase requires this field", MissingField}
	}
	var seqs, within [][]uint64
	for _, f := range []struct {
		name string
		into any
		want string
	}{
		{eraseSeqs, &seqs, "an array of ranges such as [1,3]"},
		{eraseWithin, &within, "an array such as [[4,0,2]]: a seq and indices"},
		{eraseSummaries, &e.Summaries, wantSummaries},
		{eraseValues, &e.Values, wantValues},
		{eraseInitial, &e.Initial, "an array of keys"},
		{eraseReason, &e.Reason, "a string"},
		{eraseClosed, &e.ClosedAt, "a seq"},
		{eraseCall, &e.CallID, "a string"},
		{eraseCallSession, &e.CallSession, "a string"},
		{eraseSession, &e.Session, "a string"},
		{eraseSeen, &e.Seen, "a seq"},
		{eraseContext, &e.Context, "true or false"},
		{eraseMaxGrowth, &e.MaxGrowth, "a number of tokens"},
		{eraseForUser, &e.ForUser, "true or false"},
		{eraseOfUser, &e.OfUser, "true or false"},
		{eraseDone, &e.Done, "true or false"},
	} {
		text := p.field(f.name)
		if isNull := string(text) == "null"; text != nil && (isNull && f.name == eraseSeqs || !isNull && stdjson.Unmarshal(text, f.into) != nil) {
			return e, wrongField(f.name, f.want)
		}
	}
	last := uint64(0)
	for _, s := range seqs {
		if len(s) != 2 || s[0] <= last || s[1] < s[0] {
			return e, &FieldError{eraseSeqs, fmt.Sprintf("%v is not a range of seqs above %d", s, last), WrongField}
		}
		e.Seqs, last = append(e.Seqs, Span{s[0], s[1]}), s[1]
	}
	for _, of := range within {
		if len(of) == 0 || !e.covers(of[0]) || e.EventIndices[of[0]] != nil {
			return e, &FieldError{eraseWithin, fmt.Sprintf("want a seq that is in %[2]s and not repeated, then indices; not %[1]v", of, eraseSeqs), WrongField}
		}
		indices := make([]int, len(of)-1)
		for i, at := range of[1:] {
			if at > MaxRecordBytes || i > 0 && int(at) <= indices[i-1] {
				return e, &FieldError{eraseWithin, fmt.Sprintf("the indices of record %d are not in ascending order", of[0]), WrongField}
			}
			indices[i] = int(at)
		}
		if e.EventIndices == nil {
			e.EventIndices = map[uint64][]int{}
		}
		e.EventIndices[of[0]] = indices
	}
	switch {
	case e.Summaries != RevertSummaries && e.Summaries != BlankSummaries && e.Summaries != KeepSummaries:
		return e, wrongField(eraseSummaries, wantSummaries)
	case e.Values != "" && e.Values != KeepValues && e.Values != NullValues:
		return e, wrongField(eraseValues, wantValues)
	}
	if e.Values == "" {
		e.Values = KeepValues
	}
	for _, name := range []string{eraseInitial, eraseReason, eraseCall, eraseCallSession, eraseSession} {
		if !utf8.Valid(p.field(name)) {
			return e, &FieldError{name, "the text is not valid UTF-8", WrongField}
		}
	}
	return e, nil
}

// ErasureUpTo returns a copy of the receipt that covers only records up to the given seq. A fork of the log at
// that seq needs such a copy. If the patch is not a well-formed receipt, ok is false.
func (p *PatchEvent) ErasureUpTo(seq uint64) (receipt *PatchEvent, ok bool) {
	e, ok := p.Erasure()
	if !ok {
		return nil, false
	}
	coversLater := false
	e.Seqs = slices.DeleteFunc(slices.Clone(e.Seqs), func(s Span) bool {
		coversLater = coversLater || s.To > seq
		return s.From > seq
	})
	if !coversLater && e.ClosedAt <= seq {
		return p, true
	}
	if last := len(e.Seqs) - 1; last >= 0 {
		e.Seqs[last].To = min(e.Seqs[last].To, seq)
	}
	maps.DeleteFunc(e.EventIndices, func(of uint64, _ []int) bool { return of > seq })
	e.ClosedAt = min(e.ClosedAt, seq)
	out := NewErase(e)
	out.identity = p.identity
	return out, true
}
