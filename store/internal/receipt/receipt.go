// Package receipt decodes the receipts of erasures and finds the marks of erased content in a log. It does no I/O.
package receipt

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Receipt is a receipt's record and its decoded content, limited to the records before the receipt.
type Receipt struct {
	patch.Record
	Erasure patch.Erasure
}

// IsReceipt reports whether a record is a well-formed receipt.
func IsReceipt(r patch.Record) bool {
	if r.Patch == nil {
		return false
	}
	_, ok := r.Patch.Erasure()
	return ok
}

// Decode decodes the receipt in a record. It drops references to the receipt itself and to later records.
func Decode(r patch.Record) Receipt {
	e, _ := r.Patch.Erasure()
	for i, s := range e.Seqs {
		if s.To >= r.Seq {
			e.Seqs[i].To = r.Seq - 1
			if e.Seqs = e.Seqs[:i+1]; s.From >= r.Seq {
				e.Seqs = e.Seqs[:i]
			}
			break
		}
	}
	return Receipt{r, e}
}

// Covers reports whether the receipt covers an event. The index -1 means the content of a patch apart from its
// events.
func (r Receipt) Covers(ref fold.Ref) bool { return r.Erasure.CoversEvent(ref.Seq, ref.Index) }

// KeepsSummaries reports whether the erasure keeps the summaries of erased events.
func (r Receipt) KeepsSummaries() bool { return r.Erasure.Summaries == patch.KeepSummaries }

// IsOpen reports whether the receipt was logged in the session with this creation id and is not closed.
func (r Receipt) IsOpen(creation string) bool {
	return r.Erasure.Session == creation && r.Erasure.ClosedAt == 0
}

// IsCall reports whether this is the first receipt of a call on the session with this creation id.
func (r Receipt) IsCall(creation string) bool {
	return r.Erasure.Session == creation && r.Erasure.CallSession == creation && r.ID() == ID(r.Erasure, 0)
}

// IsOfCall reports whether the receipt belongs to the given call and was logged in the session with this creation id.
func (r Receipt) IsOfCall(call patch.Erasure, creation string) bool {
	return r.Erasure.CallID == call.CallID && r.Erasure.ForUser == call.ForUser && r.Erasure.CallSession == call.CallSession && r.Erasure.Session == creation
}

// ID derives the id of receipt n, from 0, of a call in a session. Every process derives the same id, so a log
// contains the receipt at most once. The ids differ between sessions and between calls.
func ID(of patch.Erasure, n int) string {
	name := fmt.Sprintf("%q %t %q %q %d", of.CallID, of.ForUser, of.CallSession, of.Session, n)
	return uuid.NewSHA1(receiptSpace, []byte(name)).String()
}

var receiptSpace = uuid.MustParse("5a0e6f0e-6e0b-4c55-9c0f-7f1f4c7d0b4e")

// Blank returns the record without the content that the receipts erase. If nothing is left to erase, it returns r
// itself.
func Blank(r patch.Record, receipts []Receipt) patch.Record {
	for _, receipt := range receipts {
		if r.Seq < receipt.Seq {
			r = receipt.Erasure.Blank(r, receipt.ID())
		}
	}
	return r
}

// NullInitial sets values of a session's initial state to null if a receipt erases them. The result changed reports
// whether any of these values was not null before.
func NullInitial(initial map[string]patch.Value, receipts []Receipt) (changed bool) {
	for _, r := range receipts {
		for _, name := range r.Erasure.Initial {
			if v, found := initial[name]; found && !IsNull(v) {
				initial[name], changed = Null, true
			}
		}
	}
	return changed
}

// Null is the JSON value null.
var Null = func() patch.Value {
	v, err := patch.ParseValue([]byte("null"))
	if err != nil {
		panic(err)
	}
	return v
}()

// IsNull reports whether a value is null.
func IsNull(v patch.Value) bool { return v.Any() == nil }

// CoveredSeqs returns the seqs of the records that the receipts cover, in ascending order.
func CoveredSeqs(receipts ...Receipt) (seqs []uint64) {
	for _, r := range receipts {
		for _, s := range r.Erasure.Seqs {
			for seq := s.From; seq <= s.To; seq++ {
				seqs = append(seqs, seq)
			}
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// Marks collects the receipts of a log and the marks of its erased content.
type Marks struct {
	Receipts []Receipt
	blanks   []Mark // in log order
}

// Mark is erased content and the id of the receipt that erased it.
type Mark struct {
	fold.Ref // Index -1 means the content of a patch apart from its events
	Receipt  string
}

// Add adds the next record of the log.
func (s *Marks) Add(r patch.Record) {
	if r.Patch != nil {
		if IsReceipt(r) {
			s.Receipts = append(s.Receipts, Decode(r))
		}
		if receipt, erased := r.Patch.ErasedBy(); erased {
			s.blanks = append(s.blanks, Mark{fold.Ref{Seq: r.Seq, Index: -1}, receipt})
		}
	}
	for i, event := range r.Events() {
		if receipt, erased := event.ErasedBy(); erased {
			s.blanks = append(s.blanks, Mark{fold.Ref{Seq: r.Seq, Index: i}, receipt})
		}
	}
}

// WithoutReceipt returns the marks whose receipt is missing or does not cover the erased content. It returns one mark
// for each record and receipt.
func (s *Marks) WithoutReceipt() (marks []Mark) {
	receipts := s.byID()
	for _, b := range s.blanks {
		r, covered := receipts[b.Receipt]
		covered = covered && r.Covers(b.Ref)
		last := len(marks) - 1
		if !covered && (last < 0 || marks[last].Seq != b.Seq || marks[last].Receipt != b.Receipt) {
			marks = append(marks, b)
		}
	}
	return marks
}

// MissingReceipts returns the ids of receipts that marks refer to and that the log does not have.
func (s *Marks) MissingReceipts() (ids []string) {
	receipts := s.byID()
	for _, b := range s.blanks {
		if _, known := receipts[b.Receipt]; !known {
			ids = append(ids, b.Receipt)
			receipts[b.Receipt] = Receipt{}
		}
	}
	return ids
}

func (s *Marks) byID() map[string]Receipt {
	receipts := make(map[string]Receipt, len(s.Receipts))
	for _, r := range s.Receipts {
		receipts[r.ID()] = r
	}
	return receipts
}
