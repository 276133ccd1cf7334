package write

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// batch holds encoded records and the data that is committed with them.
type batch struct {
	Counts Counts // counts of the log including the records

	records     []backend.Record
	shared      []backend.Value
	size        int               // total size of the records in bytes
	invocations []string          // see [State]
	taken       map[string]uint64 // ids taken in the log or by earlier batches of the write group, with their seqs; only ids that were looked up
	indexed     map[string]bool   // index ids of patch groups and invocations that records of this batch take
}

// add encodes and adds a record, whose seq is set.
func (b *batch) add(s *Session, r patch.Record) error {
	data, err := patch.AppendRecord(nil, r)
	if err != nil {
		return err
	}
	if len(data) > s.MaxRecordBytes {
		return fmt.Errorf("%w: record %q takes %d bytes; the limit is %d", patch.ErrTooLarge, r.ID(), len(data), s.MaxRecordBytes)
	}
	b.addEncoded(r, data)
	return b.addShared(s, slices.Collect(records.SharedChanges(r)))
}

func (b *batch) addEncoded(r patch.Record, data []byte) {
	raw := backend.Record{Seq: r.Seq, Sum: recordform.Checksum(data), Data: data}
	for id := range r.IDs() {
		raw.IDs = append(raw.IDs, id)
	}
	if r.Patch != nil && r.Patch.Group() != "" {
		b.index(&raw, groupIndex(r.Patch.Group()))
	}
	if r.Event != nil && r.Event.InvocationID() != "" && !slices.Contains(b.invocations, r.Event.InvocationID()) {
		b.index(&raw, InvocationIndex(r.Event.InvocationID()))
		b.invocations = WithInvocation(b.invocations, r.Event.InvocationID())
	}
	b.records = append(b.records, raw)
	b.Counts.Add(r)
	b.size += len(data)
}

// index adds an index id of a patch group or an invocation to a record, unless an earlier record has taken the id.
func (b *batch) index(raw *backend.Record, id string) {
	if b.taken[id] != 0 || b.indexed[id] {
		return
	}
	if b.indexed == nil {
		b.indexed = map[string]bool{}
	}
	raw.IDs, b.indexed[id] = append(raw.IDs, id), true
}

// restore removes the index ids added since the copy earlier was made, and returns earlier.
func (b *batch) restore(earlier batch) batch {
	for _, raw := range b.records[min(len(earlier.records), len(b.records)):] {
		for _, id := range raw.IDs {
			delete(b.indexed, id)
		}
	}
	return earlier
}

func (b *batch) addShared(s *Session, changes []patch.Change) error {
	for _, c := range changes {
		name := s.Shared(c.Key)
		if len(name) > backend.MaxNameBytes {
			return fmt.Errorf("%w: state key %.40q has %d bytes", patch.ErrTooLarge, c.Key, len(c.Key))
		}
		data, err := c.Value.MarshalBinary()
		if err != nil {
			return err
		}
		if len(data) > s.MaxRecordBytes {
			return fmt.Errorf("%w: the value of state key %.40q takes %d bytes; the limit is %d", patch.ErrTooLarge, c.Key, len(data), s.MaxRecordBytes)
		}
		b.shared = append(b.shared, backend.Value{Name: name, Data: data})
	}
	return nil
}

// The id index has two kinds of entries besides the ids of records. The entry of a patch group refers to the first
// patch of the group and prevents another call from logging the same group. The entry of an invocation refers to its
// first event, which is the target of a rewind. The ids of these entries are longer than the id of any record.
var (
	groupMark      = strings.Repeat("\x00", patch.MaxIDBytes+1)
	invocationMark = strings.Repeat("\x01", patch.MaxIDBytes+1)
)

func groupIndex(group string) string { return groupMark + group }

// InvocationIndex returns the index id of the first event of an invocation.
func InvocationIndex(invocation string) string {
	sum := sha256.Sum256([]byte(invocation)) // an invocation id can have any length
	return invocationMark + string(sum[:])
}

// maxInvocations limits the invocations that are cached as present in the index.
const maxInvocations = 8

// WithInvocation returns the most recent invocations, including this one.
func WithInvocation(last []string, invocation string) []string {
	if slices.Contains(last, invocation) {
		return last
	}
	return append(slices.Clone(last[max(0, len(last)-maxInvocations+1):]), invocation)
}

// IndexIDs returns all ids that a record can take in the id index.
func IndexIDs(r patch.Record) []string {
	ids := slices.Collect(r.IDs())
	switch {
	case r.Patch != nil && r.Patch.Group() != "":
		ids = append(ids, groupIndex(r.Patch.Group()))
	case r.Event != nil && r.Event.InvocationID() != "":
		ids = append(ids, InvocationIndex(r.Event.InvocationID()))
	}
	return ids
}

func indexIDs(records []patch.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, IndexIDs(r)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Compress compresses a record. It is a variable so that tests that search a file for texts can replace it.
var Compress = recordform.Compress

// CompressAll compresses the data of the records.
func CompressAll(records []backend.Record) {
	ForEach(len(records), func(i int) { records[i].Data = Compress(records[i].Data) })
}

// minItemsPerWorker is the minimum number of items per goroutine.
const minItemsPerWorker = 16

// ForEach calls do(i) for each i from 0 to n-1. If n is large, the calls are spread over several goroutines.
func ForEach(n int, do func(i int)) {
	workers := max(1, min(runtime.GOMAXPROCS(0), n/minItemsPerWorker))
	var wg sync.WaitGroup
	work := func(first int) {
		for i := first; i < n; i += workers {
			do(i)
		}
	}
	for w := 1; w < workers; w++ {
		wg.Go(func() { work(w) })
	}
	work(0)
	wg.Wait()
}
