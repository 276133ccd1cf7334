package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
	"github.com/patchlog-dev/patchlog/store/internal/salvage"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

func (v *salvager) write(ctx context.Context, l *salvage.Log) error {
	w := salvagedWriter{salvager: v, log: l, out: SalvagedSession{
		EndUnknown: !l.EndKnown, MaybeDeleted: l.MaybeDeleted, Nameless: !l.Named,
	}}
	if l.Named {
		w.out.Key, _ = keyOf(l.Name) // cannot fail, because Logs has checked the name
	}
	if l.Entry != nil {
		w.meta = v.meta(l)
	}
	if w.out.Stateless = w.meta == nil; w.out.Stateless {
		w.meta = &meta{created: v.store.opts.Now().UTC()}
	}
	switch {
	case !l.Named:
		w.out.Key = Key{"salvaged", "unknown", fmt.Sprintf("session-%d", l.Number)}
	case l.HasDeletionMark:
		w.suffix = "~maybe-deleted"
	case w.out.Stateless:
		w.suffix = "~without-state"
	}
	if !w.out.Stateless && !l.HasDeletionMark { // the session exists, even if all of its records are lost
		if err := w.beginPart(ctx, 1, true, false); err != nil {
			return err
		}
	}
	next := uint64(1) // the next expected seq
	for i, r := range slices.Concat(l.Records, l.Alternatives) {
		rec, form, ok := v.Read(l, r)
		if !ok {
			continue
		}
		isAlternative := i >= len(l.Records)
		doubtful := isAlternative || l.IsDoubtful(r.Seq)
		continuesPart := !isAlternative && w.part != nil && r.Seq == next && doubtful == w.part.Doubtful
		log := continuesPart && w.part.Log || !isAlternative && r.Seq == 1 && !doubtful
		texts := 0
		if !log {
			place := uint64(1)
			if continuesPart {
				place = w.part.To - w.part.From + 2
			}
			if rec.Patch != nil {
				texts = 1
			}
			var err error
			if rec, form, err = standaloneRecord(rec, place); err != nil {
				continue
			}
		}
		if !continuesPart {
			if err := w.endPart(ctx); err != nil {
				return err
			}
			if err := w.beginPart(ctx, r.Seq, log, doubtful); err != nil {
				return err
			}
		}
		w.part.Texts += texts
		if err := w.addRecord(rec, form); err != nil {
			return err
		}
		if !isAlternative {
			if r.Seq > next {
				w.out.Lost = append(w.out.Lost, patch.Span{From: next, To: r.Seq - 1})
			}
			next = r.Seq + 1
		}
	}
	if next <= l.Last && l.Last < math.MaxUint64 {
		w.out.Lost = append(w.out.Lost, patch.Span{From: next, To: l.Last})
	}
	if err := w.endPart(ctx); err != nil {
		return err
	}
	s := &w.out
	s.Whole = len(s.Lost) == 0 && len(s.ReceiptLost) == 0 && !s.EndUnknown && !s.MaybeDeleted && !s.Nameless && !s.Stateless && len(s.Parts) == 1 && s.Parts[0].Log
	v.out.Records += w.out.Records
	v.out.Sessions = append(v.out.Sessions, w.out)
	return nil
}

// meta returns a session's meta record, or nil if the record is lost. Values of the initial state that were erased
// are null.
func (v *salvager) meta(l *salvage.Log) *meta {
	creation, data, err := v.ReadMeta(*l.Entry)
	if err != nil {
		return nil
	}
	m, err := decodeMeta(data)
	if err != nil {
		return nil
	}
	receipt.NullInitial(m.initial, l.Receipts)
	m.lineage = erase.ExtendLineage(creation, m.lineage, endOfLog) // makes forks of the old session related to the new session
	return &m
}

// salvagedWriter writes the parts of one session, one after another.
type salvagedWriter struct {
	*salvager
	log    *salvage.Log
	out    SalvagedSession
	suffix string // suffix of the session's key
	meta   *meta  // meta record for the session of each part

	part     *SalvagedPart // current part; nil between parts
	creation *write.Creation
	handle   *handle       // handle of the part's session
	marks    receipt.Marks // marks of the part's records
}

// beginPart begins a part whose first record has the given seq in the old log.
func (w *salvagedWriter) beginPart(ctx context.Context, seq uint64, log, doubtful bool) error {
	mark := w.suffix
	if !log {
		mark += fmt.Sprintf("~from-%d", seq)
	}
	key, err := w.unusedKey(ctx, w.out.Key, mark)
	if err != nil {
		return err
	}
	w.part = &SalvagedPart{Key: key, Span: patch.Span{From: seq, To: seq - 1}, Log: log, Doubtful: doubtful}
	w.marks = receipt.Marks{}
	m := *w.meta
	if !log {
		m.initial, m.lineage = nil, nil
	}
	w.handle = w.store.cache.acquire(key)
	w.creation, err = w.store.newSession(ctx, w.handle, m)
	return err
}

func (w *salvagedWriter) addRecord(rec patch.Record, form []byte) error {
	view := w.creation.View
	next, err := view.Apply(rec)
	if need := (*fold.MissingRecordsError)(nil); errors.As(err, &need) { // the part is the beginning of the log, so the log has the missing records
		next, err = view.WithRecords(w.read(need.Seqs)).Apply(rec)
	}
	if err != nil {
		next = view
	}
	w.creation.Copy(rec, form, next)
	w.marks.Add(rec)
	w.part.To++
	w.out.Records++
	return w.creation.Stage()
}

// read returns the records of the log with the given seqs. It omits records that were not found.
func (w *salvagedWriter) read(seqs []uint64) (records []patch.Record) {
	for _, seq := range seqs {
		i, ok := slices.BinarySearchFunc(w.log.Records, seq, func(r bolt.ScannedRecord, seq uint64) int { return cmp.Compare(r.Seq, seq) })
		if !ok {
			continue
		}
		if rec, _, ok := w.Read(w.log, w.log.Records[i]); ok {
			records = append(records, rec)
		}
	}
	return records
}

func (w *salvagedWriter) endPart(ctx context.Context) error {
	if w.part == nil {
		return nil
	}
	defer w.store.cache.release(w.handle)
	defer w.creation.Drop()
	if m := *w.meta; w.part.Log && len(m.lineage) > 0 {
		m.lineage = erase.LimitLineage(m.lineage, w.part.To)
		var err error
		if w.creation.Meta, err = encodeMeta(m); err != nil {
			return err
		}
	}
	if err := w.creation.Commit(ctx); err != nil {
		return err
	}
	for _, mark := range w.marks.WithoutReceipt() {
		seq := w.part.From + mark.Seq - 1
		if n := len(w.out.ReceiptLost); n > 0 && seq <= w.out.ReceiptLost[n-1].To+1 && seq >= w.out.ReceiptLost[n-1].From {
			w.out.ReceiptLost[n-1].To = max(seq, w.out.ReceiptLost[n-1].To)
		} else {
			w.out.ReceiptLost = append(w.out.ReceiptLost, patch.Span{From: seq, To: seq})
		}
	}
	w.out.Parts = append(w.out.Parts, *w.part)
	w.part = nil
	return nil
}

// standaloneRecord converts a record for a session that lacks the beginning of the log. The result has the seq
// place. A patch becomes an event without effect that contains the patch as text.
func standaloneRecord(rec patch.Record, place uint64) (patch.Record, []byte, error) {
	if p := rec.Patch; p != nil {
		text, err := rec.MarshalJSON()
		if err != nil {
			return rec, nil, err
		}
		rec.Patch = nil
		rec.Event, err = patch.NewEvent(patch.Fields{ID: p.ID(), Author: p.Author(), Timestamp: p.Timestamp(), CustomMetadata: map[string]any{
			patch.OwnMetadata: map[string]any{"salvaged": map[string]any{"seq": rec.Seq, "text": string(text)}},
		}})
		if err != nil {
			return rec, nil, err
		}
	}
	rec.Seq = place
	form, err := patch.AppendRecord(nil, rec)
	return rec, form, err
}
