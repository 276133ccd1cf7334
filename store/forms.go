package store

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// decodePage decodes the first raw records: at least one, and then as many as fit into pageBytes after
// decompression. The records must have the given seqs. If a record is damaged, decodePage returns an error and the
// records before the damaged one. page.raw then ends with the damaged record.
func decodePage(key Key, raw []backend.Record, seqs []uint64) (page, error) {
	size := 0
	for i, r := range raw {
		if size += recordform.PlainSize(r.Data); size > pageBytes && i > 0 {
			raw = raw[:i]
			break
		}
	}
	records, errs := make([]patch.Record, len(raw)), make([]error, len(raw))
	write.ForEach(len(raw), func(i int) { records[i], errs[i] = decode(key, seqs[i], raw[i]) })
	for i, err := range errs {
		if err != nil {
			return page{records[:i], raw[:i+1]}, err
		}
	}
	return page{records, raw}, nil
}

func decode(key Key, seq uint64, raw backend.Record) (patch.Record, error) {
	if raw.Err != nil {
		return patch.Record{}, &CorruptError{Key: key, Seq: seq, Err: convertError(raw.Err)}
	}
	r, err := patch.DecodeRecord(raw.Data)
	if err == nil && (raw.Seq != seq || r.Seq != seq) {
		err = fmt.Errorf("%w: record %d is stored at seq %d, where record %d should be", ErrCorrupt, r.Seq, raw.Seq, seq)
	}
	if err != nil {
		return patch.Record{}, &CorruptError{Key: key, Seq: seq, Err: err}
	}
	return r, nil
}
