// Package receipt reads receipts of erasures, and what they have done to a log. It reads and writes nothing.
package receipt

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Receipt is a receipt with what it says of the records before it.
type Receipt struct {
	patch.Record
	Of patch.Erasure
}

// Is reports whether a record is a receipt that is well-formed.
func Is(r patch.Record) bool {
	if r.Patch == nil {
		return false
	}
	_, ok := r.Patch.Erasure()
	return ok
}

// Of reads a record that is a receipt. What it says of records that are not before it does not count.
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

// Covers reports whether the receipt is about an event, or about what a patch says besides its events, whose
// index is -1.
func (r Receipt) Covers(ref fold.Ref) bool { return r.Of.CoversEvent(ref.Seq, ref.Index) }

// Keeps reports whether what stands for the erased events is left as it is.
func (r Receipt) Keeps() bool { return r.Of.Summaries == patch.KeepSummaries }

// IsOpen reports whether the receipt was logged in the session with a creation id, and its erasure is not complete.
func (r Receipt) IsOpen(creation string) bool { return r.Of.Session == creation && r.Of.ClosedAt == 0 }

// IsCall reports whether the receipt is that of a call of the session with a creation id.
func (r Receipt) IsCall(creation string) bool {
	return r.Of.Session == creation && r.Of.CallSession == creation && r.ID() == ID(r.Of, 0)
}

// IsOfCall reports whether the receipt belongs to the call of another one, and was logged in the session with a creation id.
func (r Receipt) IsOfCall(call patch.Erasure, creation string) bool {
	return r.Of.CallID == call.CallID && r.Of.ForUser == call.ForUser && r.Of.CallSession == call.CallSession && r.Of.Session == creation
}

// ID derives the id of a call's receipt in a session, the n-th after the first. Whoever logs it, and however often, a
// log has it once; and no other session, and no other call, has a receipt of this id.
func ID(of patch.Erasure, n int) string {
	name := fmt.Sprintf("%q %t %q %q %d", of.CallID, of.ForUser, of.CallSession, of.Session, n)
	return uuid.NewSHA1(receiptSpace, []byte(name)).String()
}

var receiptSpace = uuid.MustParse("5a0e6f0e-6e0b-4c55-9c0f-7f1f4c7d0b4e")

// Blank returns a record without what the receipts erase of it: itself, if that is gone already.
func Blank(r patch.Record, receipts []Receipt) patch.Record {
	for _, receipt := range receipts {
		if r.Seq < receipt.Seq {
			r = receipt.Of.Blank(r, receipt.ID())
		}
	}
	return r
}

// NullInitial sets to null what the receipts erase of a session's initial state, and reports whether there was
// any of it.
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

// Covered returns the seqs of the records that the receipts are about, in order.
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

// Marks are the marks of erased records in a log, and its receipts.
type Marks struct {
	Receipts []Receipt
	blanks   []Mark // in the order of the log
}

// Mark is what says that it was erased, and by which receipt.
type Mark struct {
	fold.Ref // Index is -1 for what a patch says besides its events
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

// WithoutReceipt returns the marks of which no receipt of the name is about that place, one for each record and receipt.
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

// MissingReceipts returns the ids of receipts that marks name and that are not among the records.
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
