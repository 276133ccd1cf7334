package erase

import (
	"cmp"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Receipt is a receipt with what it says of the records before it.
type Receipt struct {
	patch.Record
	Of patch.Erasure
}

// IsReceipt reports whether a record is a receipt that is well-formed.
func IsReceipt(r patch.Record) bool {
	if r.Patch == nil {
		return false
	}
	_, ok := r.Patch.Erasure()
	return ok
}

// ReceiptOf reads a record that is a receipt. What it says of records that are not before it does not count.
func ReceiptOf(r patch.Record) Receipt {
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

// ReceiptsOf reads records that are receipts.
func ReceiptsOf(records []patch.Record) []Receipt {
	all := make([]Receipt, len(records))
	for i, r := range records {
		all[i] = ReceiptOf(r)
	}
	return all
}

// Covers reports whether the receipt is about an event, or about what a patch says besides its events, whose
// index is -1.
func (r Receipt) Covers(ref fold.Ref) bool { return r.Of.CoversEvent(ref.Seq, ref.Index) }

// Keeps reports whether what stands for the erased events is left as it is.
func (r Receipt) Keeps() bool { return r.Of.Summaries == patch.KeepSummaries }

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

// Covered returns the records that the receipts are about, in order.
func Covered(receipts []Receipt) (union []patch.Span) {
	var spans []patch.Span
	for _, r := range receipts {
		spans = append(spans, r.Of.Seqs...)
	}
	slices.SortFunc(spans, func(a, b patch.Span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range spans {
		if last := len(union) - 1; last >= 0 && s.From <= union[last].To {
			union[last].To = max(union[last].To, s.To)
		} else {
			union = append(union, s)
		}
	}
	return union
}

// Chunks yields the seqs of spans, at most n at a time.
func Chunks(spans []patch.Span, n int) func(yield func([]uint64) bool) {
	return func(yield func([]uint64) bool) {
		var seqs []uint64
		for _, s := range spans {
			for seq := s.From; seq <= s.To; seq++ {
				if seqs = append(seqs, seq); len(seqs) == n {
					if !yield(seqs) {
						return
					}
					seqs = nil
				}
			}
		}
		if len(seqs) > 0 {
			yield(seqs)
		}
	}
}

// Said is what a log says of what was erased of it.
type Said struct {
	Receipts []Receipt
	blanks   []Mark // in the order of the log
}

// Mark is what says that it was erased, and by which receipt.
type Mark struct {
	fold.Ref // Index is -1 for what a patch says besides its events
	Receipt  string
}

// Record takes in the next record.
func (s *Said) Record(r patch.Record) {
	if r.Patch != nil {
		if IsReceipt(r) {
			s.Receipts = append(s.Receipts, ReceiptOf(r))
		}
		if receipt, erased := r.Patch.Erased(); erased {
			s.blanks = append(s.blanks, Mark{fold.Ref{Seq: r.Seq, Index: -1}, receipt})
		}
	}
	for i, event := range r.Events() {
		if receipt, erased := event.Erased(); erased {
			s.blanks = append(s.blanks, Mark{fold.Ref{Seq: r.Seq, Index: i}, receipt})
		}
	}
}

// Unsaid returns the marks of which no receipt of the name is about that place, one for each record and receipt.
func (s *Said) Unsaid() (marks []Mark) {
	byID := s.byID()
	for _, b := range s.blanks {
		if !slices.ContainsFunc(byID[b.Receipt], func(r Receipt) bool { return r.Covers(b.Ref) }) && !sameMark(marks, b) {
			marks = append(marks, b)
		}
	}
	return marks
}

func sameMark(marks []Mark, b Mark) bool {
	last := len(marks) - 1
	return last >= 0 && marks[last].Seq == b.Seq && marks[last].Receipt == b.Receipt
}

// Lacks returns the ids of receipts that marks name and that are not among the records.
func (s *Said) Lacks() (ids []string) {
	byID := s.byID()
	for _, b := range s.blanks {
		if byID[b.Receipt] == nil {
			byID[b.Receipt] = []Receipt{}
			ids = append(ids, b.Receipt)
		}
	}
	return ids
}

func (s *Said) byID() map[string][]Receipt {
	byID := map[string][]Receipt{}
	for _, r := range s.Receipts {
		byID[r.ID()] = append(byID[r.ID()], r)
	}
	return byID
}
