// Package salvage recovers the sessions in a bbolt file that may be damaged. It finds the records of each session and
// determines which of them belong to the session's log.
package salvage

import (
	"context"
	"io"
	"slices"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

// File is a scanned file.
type File struct {
	*bolt.Scan

	// Deleted counts the sessions that [File.Logs] omits because they were deleted or never completely created.
	// DeletedRecords counts the records of these sessions.
	Deleted, DeletedRecords int

	receipts map[uint32]bool // key: checksum; value: whether the record is a receipt
}

// Scan reads a file of the given size, which may be damaged.
func Scan(ctx context.Context, file io.ReaderAt, size int64) (*File, error) {
	v := &File{receipts: map[uint32]bool{}}
	var err error
	v.Scan, err = bolt.ScanFile(ctx, file, size, bolt.Decoders{
		IsValue: func(form []byte) bool {
			var v patch.Value
			return v.UnmarshalBinary(form) == nil
		},
		RecordSeq: func(form []byte) (uint64, bool) {
			r, err := patch.DecodeRecord(form)
			if err == nil && receipt.IsReceipt(r) {
				v.receipts[recordform.Checksum(form)] = true
			}
			return r.Seq, err == nil
		},
		MaxBytes: patch.MaxRecordBytes,
	})
	return v, err
}

// Read reads a record of a log and erases the content that later receipts cover. It also returns the encoded record.
func (v *File) Read(l *Log, r bolt.ScannedRecord) (rec patch.Record, form []byte, ok bool) {
	if rec, form, ok = v.readScanned(r); !ok {
		return rec, nil, false
	}
	was := rec
	if rec = receipt.Blank(rec, l.Receipts); rec == was {
		return rec, form, true
	}
	form, err := patch.AppendRecord(nil, rec)
	return rec, form, err == nil
}

// readScanned reads a record and checks that it is the record that was scanned.
func (v *File) readScanned(r bolt.ScannedRecord) (patch.Record, []byte, bool) {
	form, err := v.Scan.Read(r)
	if err != nil || recordform.Checksum(form) != r.Sum {
		return patch.Record{}, nil, false
	}
	rec, err := patch.DecodeRecord(form)
	if err != nil || rec.Seq != r.Seq {
		return patch.Record{}, nil, false
	}
	form, err = patch.AppendRecord(nil, rec)
	return rec, form, err == nil
}

// applyErasures applies the erasures of a log.
//
// Free pages may have a record from before its erasure. If both a record and its blank are found, applyErasures chooses the
// blank. It also collects the receipts, so that [File.Read] can erase content in the other records. This is needed
// even if the records match the chain, because the chain may be from before the end of the erasure.
func (v *File) applyErasures(l *Log) {
	for _, r := range slices.Concat(l.Records, l.Alternatives) {
		if !v.receipts[r.Sum] || slices.Contains(l.maybeForeign, r.Seq) {
			continue
		}
		if rec, _, ok := v.readScanned(r); ok && receipt.IsReceipt(rec) {
			l.Receipts = append(l.Receipts, receipt.Decode(rec))
		}
	}
	for at, candidates := range l.candidates {
		blanks := map[string]bolt.ScannedRecord{} // key: record id
		for _, r := range candidates {
			rec, _, ok := v.readScanned(r)
			if !ok {
				continue
			}
			if _, blank := records.Envelope(rec).ErasedBy(); blank {
				blanks[rec.ID()] = r
			}
		}
		if len(blanks) == 0 {
			continue
		}
		blankOf := func(r bolt.ScannedRecord) (bolt.ScannedRecord, bool) {
			rec, _, ok := v.readScanned(r)
			blank, found := blanks[rec.ID()]
			return blank, ok && found
		}
		if blank, ok := blankOf(l.Records[at]); ok {
			l.Records[at] = blank
		}
		l.Alternatives = slices.DeleteFunc(l.Alternatives, func(r bolt.ScannedRecord) bool {
			_, ok := blankOf(r)
			return ok && r.Seq == l.Records[at].Seq
		})
	}
}
