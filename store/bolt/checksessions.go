package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"

	bbolt "go.etcd.io/bbolt"
)

// findings are what a check has found wrong.
type findings []error

func (f *findings) report(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// tally is what a check knows of a session.
type tally struct {
	name  []byte
	head  *head // nil in a file of version 1, and if it is damaged
	last  uint64
	index index
}

// checkSessions checks that each session has a number of its own that has been given
// out, that its records have no gap, that they and the rows of its ids are as many as its
// head says, and that no head, record, row or snapshot is without its session or record.
func checkSessions(tx *bbolt.Tx) (found findings) {
	tallies := checkEntries(tx, &found)
	unlinked := checkUnlinked(tx, tallies, &found)
	checkRecords(tx, tallies, unlinked, &found)
	checkIDs(tx, tallies, unlinked, &found)
	for k := range pairs(tx.Bucket(bucketSnapshots)) {
		if tallies[string(k)] == nil && !unlinked[string(k)] {
			found.report("snapshot of session number %x, which is not there", k)
		}
	}
	return found
}

// checkEntries checks entries and heads, and returns the sessions by their numbers.
func checkEntries(tx *bbolt.Tx, found *findings) map[string]*tally {
	sessions, heads := tx.Bucket(bucketSessions), tx.Bucket(bucketHeads)
	tallies := map[string]*tally{}
	for k, v := range pairs(sessions) {
		s, err := decodeSession(string(k), v)
		if err != nil {
			*found = append(*found, err)
			continue
		}
		if tallies[string(s.number)] != nil {
			found.report("session %q: its number %x is another's too", k, s.number)
		}
		if n := binary.BigEndian.Uint64(s.number); n == 0 || n > sessions.Sequence() {
			found.report("session %q: its number %d has not been given out", k, n)
		}
		tallies[string(s.number)] = &tally{name: k}
	}
	if heads == nil {
		return tallies
	}
	if noted := tx.Bucket(bucketMeta).Get(keyNumbers); !bytes.Equal(noted, number(sessions.Sequence())) {
		found.report("of the numbers of sessions the last one given out is %d, or %x", sessions.Sequence(), noted)
	}
	for k, v := range pairs(heads) {
		h, err := decodeHead(string(k), v)
		switch t := tallies[string(h.number)]; {
		case err != nil:
			*found = append(*found, err)
		case t == nil || !bytes.Equal(t.name, k):
			found.report("session %q has a head with number %x, and no such entry", k, h.number)
		default:
			t.head = &h
		}
	}
	for n, t := range tallies {
		if t.head == nil {
			found.report("session %q, number %x, has no head", t.name, n)
		}
	}
	return tallies
}

// checkUnlinked checks that no unlinked number is a session's, and returns them all:
// whatever is left under them is nobody's.
func checkUnlinked(tx *bbolt.Tx, tallies map[string]*tally, found *findings) map[string]bool {
	numbers := map[string]bool{}
	bucket := tx.Bucket(bucketUnlinked)
	if bucket == nil {
		return numbers
	}
	for k, v := range pairs(bucket) {
		if !wholeUnlinked(k, v) {
			found.report("the checksum of the unlinked number %x", k)
			continue
		}
		numbers[string(k)] = true
		if tallies[string(k)] != nil {
			found.report("number %x is unlinked, but a session's", k)
		}
		if n := binary.BigEndian.Uint64(k); n == 0 || n > tx.Bucket(bucketSessions).Sequence() {
			found.report("number %d is unlinked, but has not been given out", n)
		}
	}
	return numbers
}

func checkRecords(tx *bbolt.Tx, tallies map[string]*tally, unlinked map[string]bool, found *findings) {
	for k := range pairs(tx.Bucket(bucketRecords)) {
		if len(k) != 16 {
			found.report("record key %x", k)
			continue
		}
		if unlinked[string(k[:8])] {
			continue
		}
		seq := binary.BigEndian.Uint64(k[8:])
		t := tallies[string(k[:8])]
		if t == nil {
			found.report("record %d of session number %x, which is not there", seq, k[:8])
			continue
		}
		if seq != t.last+1 {
			found.report("session number %x: record %d after record %d", k[:8], seq, t.last)
		}
		t.last = seq
	}
	for n, t := range tallies {
		if t.head != nil && t.head.last != t.last {
			found.report("session number %x: its last record is %d, and its head says %d", n, t.last, t.head.last)
		}
	}
}

func checkIDs(tx *bbolt.Tx, tallies map[string]*tally, unlinked map[string]bool, found *findings) {
	for k, v := range pairs(tx.Bucket(bucketIDs)) {
		if len(k) != 8+idHashBytes || len(v) != 8 {
			found.report("id key %x with %d bytes", k, len(v))
			continue
		}
		if unlinked[string(k[:8])] {
			continue
		}
		t := tallies[string(k[:8])]
		if t == nil {
			found.report("an id of session number %x, which is not there", k[:8])
			continue
		}
		t.index = t.index.add(k, v)
		if seq := binary.BigEndian.Uint64(v); seq == 0 || seq > t.last {
			found.report("session number %x: the id with hash %x is in record %d, which is not there", k[:8], k[8:], seq)
		}
	}
	for n, t := range tallies {
		if t.head != nil && t.head.index != uncounted && t.head.index != t.index {
			found.report("session number %x: the index of its ids has %d rows of sum %08x, and its head says %d of sum %08x",
				n, t.index.rows, t.index.sum, t.head.index.rows, t.head.index.sum)
		}
	}
}

// checkShared checks that each shared value is what was written, and its name in both
// places.
func checkShared(tx *bbolt.Tx) (found findings) {
	shared, sharedNames := tx.Bucket(bucketShared), tx.Bucket(bucketSharedNames)
	if sharedNames == nil {
		return nil
	}
	for k, row := range pairs(shared) {
		switch mark := sharedNames.Get(k); {
		case len(row) < 4 || binary.BigEndian.Uint32(row) != sumOf(k, row[4:]):
			found.report("the checksum of shared value %q", k)
		case !bytes.Equal(mark, nameMark(k)):
			found.report("shared value %q: its name is missing among the names", k)
		}
	}
	for k, mark := range pairs(sharedNames) {
		switch {
		case !bytes.Equal(mark, nameMark(k)):
			found.report("the checksum of the name of shared value %q", k)
		case shared.Get(k) == nil:
			found.report("shared value %q is missing", k)
		}
	}
	return found
}
