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

// onePage returns as many of the records, at least one, as are a page when they are
// decompressed.
func onePage(raw []backend.Record) []backend.Record {
	size := 0
	for i, r := range raw {
		if size += recordform.PlainSize(r.Data); size > pageBytes && i > 0 {
			return raw[:i]
		}
	}
	return raw
}

// decodeAll decodes records; seq says where in the log each one should stand. Each has a record
// or an error.
func decodeAll(key Key, raw []backend.Record, seq func(i int) uint64) ([]patch.Record, []error) {
	records, errs := make([]patch.Record, len(raw)), make([]error, len(raw))
	each(len(raw), func(i int) { records[i], errs[i] = decode(key, seq(i), raw[i]) })
	return records, errs
}

// from says that records stand one behind the other.
func from(first uint64) func(i int) uint64 {
	return func(i int) uint64 { return first + uint64(i) }
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
