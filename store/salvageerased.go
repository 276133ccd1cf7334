package store

import (
	"slices"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// Pages that are free have records as they were before they were erased. What was erased stays so:
// of a record and its blank the blank is taken, and what a receipt is about is made blank again.

// forms are how a scan knows records, and takes note of the checksums of receipts.
func (v *salvage) forms() bolt.Forms {
	v.receipts = map[uint32]bool{}
	forms := salvageForms
	forms.Record = func(form []byte) (uint64, bool) {
		r, err := patch.DecodeRecord(form)
		if err == nil && erase.IsReceipt(r) {
			v.receipts[recordform.Checksum(form)] = true
		}
		return r.Seq, err == nil
	}
	return forms
}

// erase has a log go by what was erased of it. A chain that proves the log may be that of an earlier
// commit, or of one amid an erasing.
func (v *salvage) erase(l *foundLog) {
	for _, r := range slices.Concat(l.records, l.spare) {
		if !v.receipts[r.Sum] || slices.Contains(l.foreign, r.Seq) {
			continue
		}
		if rec, _, ok := v.read(r); ok && erase.IsReceipt(rec) {
			l.receipts = append(l.receipts, erase.ReceiptOf(rec))
		}
	}
	for at, choices := range l.choices {
		blanks := map[string]bolt.ScannedRecord{} // by the record's id
		for _, r := range choices {
			if rec, _, ok := v.read(r); ok && isErased(rec) {
				blanks[rec.ID()] = r
			}
		}
		if len(blanks) == 0 {
			continue
		}
		blankOf := func(r bolt.ScannedRecord) (bolt.ScannedRecord, bool) {
			rec, _, ok := v.read(r)
			blank, there := blanks[rec.ID()]
			return blank, ok && there
		}
		if blank, ok := blankOf(l.records[at]); ok {
			l.records[at] = blank
		}
		l.spare = slices.DeleteFunc(l.spare, func(r bolt.ScannedRecord) bool {
			_, ok := blankOf(r)
			return ok && r.Seq == l.records[at].Seq
		})
	}
}

func isErased(r patch.Record) bool {
	_, ok := records.Envelope(r).Erased()
	return ok
}

// meta returns what is stored with the session, with null for what was erased of its initial state.
func (l *foundLog) meta(data []byte) ([]byte, error) {
	m, err := decodeMeta(data)
	if err != nil {
		return nil, err
	}
	erased, err := erasedMeta(m, l.receipts)
	if erased == nil {
		erased = data
	}
	return erased, err
}

// readOf reads a record of a log as the receipts that are behind it have left it.
func (v *salvage) readOf(l *foundLog, r bolt.ScannedRecord) (rec patch.Record, form []byte, ok bool) {
	if rec, form, ok = v.read(r); !ok {
		return rec, nil, false
	}
	was := rec
	if rec = erase.Blank(rec, l.receipts); rec == was {
		return rec, form, true
	}
	form, err := patch.AppendRecord(nil, rec)
	return rec, form, err == nil
}
