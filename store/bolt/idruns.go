package bolt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// The row of each record has the hashes of the record's ids. To find an id without reading all rows of a session,
// bucketIDs has the ids again in sorted rows. A run is a range of records whose ids are sorted together. A run has
// these rows:
//
//	key:   session number (8) ‖ first seq of the run (8) ‖ least hash of the row (16; 0 in a run's first row)
//	value: { hash (16) ‖ seq (8) } … ‖ least hash of the next row (16; all bits set in a run's last row)
//
// The possible lengths of runs are runRecords, runRecords times runFanout, and so on. The runs of a log depend only
// on its length: as many runs of the greatest length as fit, then as many of the next smaller length, down to
// runRecords. Records after the last run have no sorted rows yet. The commit that completes a run writes the run and
// removes the shorter runs that it replaces. So each id is written at most once for each length. A look-up reads one
// row of each run, and there are at most runFanout-1 runs of each length.
const (
	runRecords = 512
	runFanout  = 8
	idsPerRow  = 80 // two such rows fill a page of 4 KiB, and a leaf of bbolt has at least two rows
)

type idEntry struct {
	Hash idHash
	Seq  uint64
}

const idEntryBytes = 16 + 8

var lastHash = idHash(bytes.Repeat([]byte{0xff}, 16))

// runsOf returns the runs of a log with the given last seq.
func runsOf(last uint64) (runs []backend.Span) {
	size := uint64(runRecords)
	for size <= last/runFanout {
		size *= runFanout
	}
	for first := uint64(1); size >= runRecords; size /= runFanout {
		for ; last-first+1 >= size; first += size {
			runs = append(runs, backend.Span{First: first, Last: first + size - 1})
		}
	}
	return runs
}

// lastInRuns returns the last seq that is in a run, for a log with the given last seq.
func lastInRuns(last uint64) uint64 { return last - last%runRecords }

func (s session) runKey(run backend.Span, hash idHash) []byte {
	key := append(make([]byte, 0, 32), s.number...)
	return append(binary.BigEndian.AppendUint64(key, run.First), hash[:]...)
}

// runGrowth is the change of a log's runs when the log grows.
type runGrowth struct {
	added, removed []backend.Span
	entries        []idEntry // ids of the removed runs and of the records after them, in any order
	removedKeys    [][]byte  // keys of the rows of the removed runs
}

// planRunGrowth returns the change of the runs of a log that grows, or nil if the runs do not change. The arguments
// from and to are the last seqs of the log before and after. planRunGrowth reads the ids of the records whose seqs
// are at most stored. The caller adds the ids of later records.
func (s session) planRunGrowth(tx *bbolt.Tx, from, to, stored uint64) (g *runGrowth, err error) {
	if lastInRuns(from) == lastInRuns(to) {
		return nil, nil
	}
	before, after := runsOf(from), runsOf(to)
	same := 0
	for same < min(len(before), len(after)) && before[same] == after[same] {
		same++
	}
	g = &runGrowth{added: after[same:], removed: before[same:]}
	return g, guardIndex(s, func() error {
		for _, run := range g.removed {
			entries, keys, err := s.readRun(tx.Bucket(bucketIDs), run)
			if err != nil {
				return err
			}
			g.entries, g.removedKeys = append(g.entries, entries...), append(g.removedKeys, keys...)
		}
		return s.forEachRecordIDs(tx, lastInRuns(from)+1, stored, g.add)
	})
}

func (g *runGrowth) add(seq uint64, hashes []idHash) {
	for _, hash := range hashes {
		g.entries = append(g.entries, idEntry{hash, seq})
	}
}

// forEachRecordIDs calls f with the seq and the ids of each record whose seq is in [from, to].
func (s session) forEachRecordIDs(tx *bbolt.Tx, from, to uint64, f func(seq uint64, hashes []idHash)) error {
	c := tx.Bucket(bucketRecords).Cursor()
	seq := from
	for key, row := c.Seek(s.key(from)); seq <= to && s.seqOf(key) == seq; key, row = c.Next() {
		hashes, ok := recordIDs(key, row)
		if !ok {
			return recordIDsError(s, seq)
		}
		f(seq, hashes)
		seq++
	}
	if seq <= to {
		return fmt.Errorf("%w: session %q: record %d is missing", backend.ErrIndex, displayName(s.name), seq)
	}
	return nil
}

// checkPaths checks the pages that g.put will copy.
func (g *runGrowth) checkPaths(s session, paths *pathChecker) (err error) {
	if g == nil {
		return nil
	}
	for _, run := range slices.Concat(g.added, g.removed) {
		err = cmp.Or(err, paths.check(s.runKey(run, idHash{})[:16], bucketIDs))
	}
	return err
}

// put writes the gained runs and removes the rows of the removed runs.
func (g *runGrowth) put(tx *bbolt.Tx, s session) error {
	if g == nil {
		return nil
	}
	bucket := tx.Bucket(bucketIDs)
	for _, key := range g.removedKeys {
		if err := bucket.Delete(key); err != nil {
			return err
		}
	}
	for _, run := range g.added {
		in := func(e idEntry) bool { return e.Seq >= run.First && e.Seq <= run.Last }
		entries := slices.DeleteFunc(slices.Clone(g.entries), func(e idEntry) bool { return !in(e) })
		if err := s.writeRun(bucket, run, entries); err != nil {
			return err
		}
	}
	return nil
}

// writeRun writes the rows of a run. If two records have the same id, writeRun stores the seq of the later record.
func (s session) writeRun(bucket *bbolt.Bucket, run backend.Span, entries []idEntry) error {
	slices.SortFunc(entries, func(a, b idEntry) int {
		if c := bytes.Compare(a.Hash[:], b.Hash[:]); c != 0 {
			return c
		}
		return cmp.Compare(b.Seq, a.Seq)
	})
	entries = slices.CompactFunc(entries, func(a, b idEntry) bool { return a.Hash == b.Hash })
	bucket.FillPercent = fillPercent
	for least, more := (idHash{}), true; more; {
		n, next := min(len(entries), idsPerRow), lastHash
		if more = n < len(entries); more {
			next = entries[n].Hash
		}
		value := make([]byte, 0, n*idEntryBytes+len(next))
		for _, e := range entries[:n] {
			value = binary.BigEndian.AppendUint64(append(value, e.Hash[:]...), e.Seq)
		}
		key := s.runKey(run, least)
		if err := bucket.Put(key, seal(kindRun, key, append(value, next[:]...))); err != nil {
			return err
		}
		entries, least = entries[n:], next
	}
	return nil
}

func decodeRunRow(key, row []byte) (entries []byte, next idHash, ok bool) {
	value, ok := unseal(kindRun, key, row)
	if !ok || len(key) != 32 || len(value) < len(next) || (len(value)-len(next))%idEntryBytes != 0 {
		return nil, next, false
	}
	end := len(value) - len(next)
	return value[:end], idHash(value[end:]), true
}

// recordIDsError returns the error for a record whose row has damaged ids.
func recordIDsError(s session, seq uint64) error {
	return fmt.Errorf("%w: session %q, record %d", backend.ErrIndex, displayName(s.name), seq)
}

func (s session) runError(run backend.Span) error {
	return fmt.Errorf("%w: session %q, records %d to %d", backend.ErrIndex, displayName(s.name), run.First, run.Last)
}

// readRun returns the ids of a run and the keys of its rows.
func (s session) readRun(bucket *bbolt.Bucket, run backend.Span) (entries []idEntry, keys [][]byte, err error) {
	var next idHash
	for key, row := range rows(bucket, s.runKey(run, idHash{})[:16]) {
		data, after, ok := decodeRunRow(key, row)
		if !ok || !bytes.Equal(key[16:], next[:]) {
			return nil, nil, s.runError(run)
		}
		for ; len(data) > 0; data = data[idEntryBytes:] {
			entries = append(entries, idEntry{idHash(data), binary.BigEndian.Uint64(data[16:])})
		}
		keys, next = append(keys, bytes.Clone(key)), after
	}
	if next != lastHash {
		return nil, nil, s.runError(run)
	}
	return entries, keys, nil
}

// findInRun returns the seq of the record in the run that has the id, or 0.
func (s session) findInRun(c *bbolt.Cursor, run backend.Span, hash idHash) (uint64, error) {
	key, row := c.Seek(s.runKey(run, hash))
	if !bytes.Equal(key, s.runKey(run, hash)) {
		if key == nil {
			key, row = c.Last()
		} else {
			key, row = c.Prev()
		}
	}
	if !bytes.HasPrefix(key, s.runKey(run, hash)[:16]) {
		return 0, s.runError(run)
	}
	data, next, ok := decodeRunRow(key, row)
	if !ok || bytes.Compare(hash[:], next[:]) >= 0 {
		return 0, s.runError(run)
	}
	at := idEntryBytes * sort.Search(len(data)/idEntryBytes, func(i int) bool { return bytes.Compare(data[i*idEntryBytes:][:16], hash[:]) >= 0 })
	if !bytes.HasPrefix(data[at:], hash[:]) {
		return 0, nil
	}
	return binary.BigEndian.Uint64(data[at+16:]), nil
}
