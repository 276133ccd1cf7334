package store

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// compressRecord is a variable for tests that look for texts in a file.
var compressRecord = recordform.Compress

// compress compresses the records, which have their seqs and fit the limits: these are about
// uncompressed records.
func compress(records []backend.Record) {
	each(len(records), func(i int) { records[i].Data = compressRecord(records[i].Data) })
}

// decodePage decodes the records that should have the given seqs: at least one, and as many as fill a page when they are
// decompressed. If one is damaged, it returns the error with the records before it, and page.raw ends with the damaged one.
func decodePage(key Key, raw []backend.Record, seqs []uint64) (page, error) {
	size := 0
	for i, r := range raw {
		if size += recordform.PlainSize(r.Data); size > pageBytes && i > 0 {
			raw = raw[:i]
			break
		}
	}
	records, errs := make([]patch.Record, len(raw)), make([]error, len(raw))
	each(len(raw), func(i int) { records[i], errs[i] = decode(key, seqs[i], raw[i]) })
	for i, err := range errs {
		if err != nil {
			return page{records[:i], raw[:i+1]}, err
		}
	}
	return page{records, raw}, nil
}

func decode(key Key, seq uint64, raw backend.Record) (patch.Record, error) {
	if raw.Err != nil {
		return patch.Record{}, &CorruptError{Key: key, Seq: seq, Err: fmt.Errorf("%w: %w", ErrCorrupt, raw.Err)}
	}
	r, err := patch.DecodeRecord(raw.Data)
	if err == nil && (raw.Seq != seq || r.Seq != seq) {
		err = fmt.Errorf("%w: record %d stands at place %d, where record %d should be", ErrCorrupt, r.Seq, raw.Seq, seq)
	}
	if err != nil {
		return patch.Record{}, &CorruptError{Key: key, Seq: seq, Err: err}
	}
	return r, nil
}

// worthwhile is how many records a goroutine of its own should have.
const worthwhile = 16

// each calls do with 0 to n-1, from several goroutines if that is worth while.
func each(n int, do func(i int)) {
	workers := max(1, min(runtime.GOMAXPROCS(0), n/worthwhile))
	var others sync.WaitGroup
	work := func(first int) {
		for i := first; i < n; i += workers {
			do(i)
		}
	}
	for w := 1; w < workers; w++ {
		others.Go(func() { work(w) })
	}
	work(0)
	others.Wait()
}
