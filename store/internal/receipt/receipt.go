// Package receipt reads receipts of erasures, and finds their marks in a log. It does no I/O.
package receipt

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Receipt is a receipt's record with its decoded content, limited to the records before it.
type Receipt struct {
	patch.Record
	Of patch.Erasure
}

// Is reports whether a record is a well-formed receipt.
func Is(r patch.Record) bool {
	if r.Patch == nil {
		return false
	}
	_, ok := r.Patch.Erasure()
	return ok
}

// Of decodes the receipt in a record. It drops references to the receipt itself and to later records.
func Of(r patch.Record) Receipt {
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

// Covers reports whether the receipt covers an event or, with index -1, a patch's content besides its events.
func (r Receipt) Covers(ref fold.Ref) bool { return r.Of.CoversEvent(ref.Seq, ref.Index) }

// Keeps reports whether summaries of the erased events stay as they are.
func (r Receipt) Keeps() bool { return r.Of.Summaries == patch.KeepSummaries }

// IsOpen reports whether the receipt was logged in the session with this creation id, and its erasure is not complete.
func (r Receipt) IsOpen(creation string) bool { return r.Of.Session == creation && r.Of.ClosedAt == 0 }

// IsCall reports whether this is the first receipt of a call on the session with this creation id.
func (r Receipt) IsCall(creation string) bool {
	return r.Of.Session == creation && r.Of.CallSession == creation && r.ID() == ID(r.Of, 0)
}

// IsOfCall reports whether the receipt belongs to the given call, and was logged in the session with this creation id.
func (r Receipt) IsOfCall(call patch.Erasure, creation string) bool {
	return r.Of.CallID == call.CallID && r.Of.ForUser == call.ForUser && r.Of.CallSession == call.CallSession && r.Of.Session == creation
}

// ID derives the id of a call's receipt in a session, the n-th after the first. Every process derives the same id, so a
// log has that receipt once. No other session and no other call has a receipt with this id.
func ID(of patch.Erasure, n int) string {
	name := fmt.Sprintf("%q %t %q %q %d", of.CallID, of.ForUser, of.CallSession, of.Session, n)
	return uuid.NewSHA1(receiptSpace, []byte(name)).String()
}

var receiptSpace = uuid.MustParse("5a0e6f0e-6e0b-4c55-9c0f-7f1f4c7d0b4e")

// Blank returns a record without the content that the receipts erase, or the record itself if nothing is left to erase.
func Blank(r patch.Record, receipts []Receipt) patch.Record {
	for _, receipt := range receipts {
		if r.Seq < receipt.Seq {
			r = receipt.Of.Blank(r, receipt.ID())
		}
	}
	return r
}

// NullInitial sets to null the values of a session's initial state that the receipts erase. changed reports whether any
// of these was not null.
func NullInitial(initial map[string]patch.Value, receipts []Receipt) (changed bool) {
	for _, r := range receipts {
		for _, name := range r.Of.Initial {
			if v, there := initial[name]; there && !IsNull(v) {
				initial[name], changed = Null, true
			}
		}
	}
	return changed
}

// Null is the value null.
var Null = func() patch.Value {
	v, err := patch.ParseValue([]byte("null"))
	if err != nil {
		panic(err)
	}
	return v
}()

// IsNull reports whether a value is null.
func IsNull(v patch.Value) bool { return v.Any() == nil }

// Covered returns the seqs of the records that the receipts cover, in order.
func Covered(receipts ...Receipt) (seqs []uint64) {
	for _, r := range receipts {
		for _, s := range r.Of.Seqs {
			for seq := s.From; seq <= s.To; seq++ {
				seqs = append(seqs, seq)
			}
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// Marks collects the marks of erased content in a log, and the log's receipts.
type Marks struct {
	Receipts []Receipt
	blanks   []Mark // in the order of the log
}

// Mark names erased content, and the receipt that erased it.
type Mark struct {
	fold.Ref // Index is -1 for a patch's content besides its events
	Receipt  string
}

// Add adds the next record of the log.
func (s *Marks) Add(r patch.Record) {
	if r.Patch != nil {
		if Is(r) {
			s.Receipts = append(s.Receipts, Of(r))
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

// WithoutReceipt returns the marks whose receipt is missing or does not cover them, one for each record and receipt.
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

// MissingReceipts returns the ids of receipts that a mark names and the log lacks.
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
