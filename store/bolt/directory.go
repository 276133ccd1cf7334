package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// directory holds the named rows of the file as one transaction saw them, and the sessions that they describe. The
// rows under the sessions' numbers can be read later, in many short transactions: writers add rows, but while
// [Backend.removalsPaused] is set they neither change nor remove any.
type directory struct {
	given    uint64                       // the last number given out
	names    map[string]map[string][]byte // rows by bucket and key
	sessions []logged                     // in the order of numbers
	unlinked []string                     // numbers
}

// logged is a session of a directory. Without a head it is damaged.
type logged struct {
	session
	name string
}

var nameBuckets = [][]byte{bucketSessions, bucketHeads, bucketShared, bucketSharedNames}

// rowBuckets have rows whose keys begin with a session's number.
var rowBuckets = [][]byte{bucketRecords, bucketSnapshots}

// readDirectory reads the named rows in one transaction, and reports inconsistencies, and rows of the given buckets
// that belong to no session. The caller has paused removals.
func (b *Backend) readDirectory(ctx context.Context, found *findings, owned ...[]byte) (m directory, err error) {
	m.names = map[string]map[string][]byte{}
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		m.given = tx.Bucket(bucketSessions).Sequence()
		if noted := tx.Bucket(bucketMeta).Get(keyNumbers); !bytes.Equal(noted, number(m.given)) {
			found.report("of the numbers of sessions the last one given out is %d, or %x", m.given, noted)
		}
		for _, bucket := range nameBuckets {
			all := map[string][]byte{}
			for k, row := range rows(tx.Bucket(bucket), nil) {
				all[string(k)] = bytes.Clone(row)
			}
			m.names[string(bucket)] = all
		}
		for k, row := range rows(tx.Bucket(bucketUnlinked), nil) {
			if _, ok := unseal(kindUnlinked, k, row); !ok || len(k) != 8 {
				found.report("the checksum of the unlinked number %x", k)
				continue
			}
			m.unlinked = append(m.unlinked, string(k))
		}
		m.check(found)
		for _, bucket := range owned {
			m.checkStrays(tx, bucket, found)
		}
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if !slices.ContainsFunc(buckets, func(b []byte) bool { return bytes.Equal(b, name) }) {
				found.report("bucket %q, which this program does not know", name)
			}
			return nil
		})
	})
	return m, err
}

// checkStrays reports rows of a bucket that belong to no session: damage may have removed the session's entry.
func (m *directory) checkStrays(tx *bbolt.Tx, bucket []byte, found *findings) {
	numbers := slices.Clone(m.unlinked)
	for _, l := range m.sessions {
		numbers = append(numbers, string(l.number))
	}
	slices.Sort(numbers)
	c, from := tx.Bucket(bucket).Cursor(), number(0)
	for _, n := range append(numbers, strings.Repeat("\xff", recordKey+1)) { // above all keys
		k, _ := c.Seek(from)
		for i := 0; k != nil && string(k) < n && i < sliceRows; i++ {
			found.report("bucket %q has key %x, of a session that is not there", bucket, k)
			k, _ = c.Next()
		}
		from = number(session{number: []byte(n)}.id() + 1)
	}
}

// check decodes the sessions, and reports named rows that are damaged or incomplete.
func (m *directory) check(found *findings) {
	heads, owners := m.names[string(bucketHeads)], map[string]string{}
	for _, n := range m.unlinked {
		owners[n] = "none"
	}
	for name, row := range m.each(bucketSessions) {
		value, _ := unseal(kindEntry, []byte(name), row)
		s, ok := decodeEntry(value)
		if !ok {
			found.report("the checksum of the entry of session %q", name)
			continue
		}
		if other, taken := owners[string(s.number)]; taken || s.id() == 0 || s.id() > m.given {
			found.report("session %q: its number %x is another's too (%s), or was never given out", name, s.number, other)
		}
		owners[string(s.number)] = name
		value, _ = unseal(kindHead, []byte(name), heads[name])
		if h, ok := decodeHead(value); ok && bytes.Equal(h.number, s.number) {
			s.head = &h
		} else {
			found.report("session %q, number %x, has no head, or its checksum is wrong", name, s.number)
		}
		m.sessions = append(m.sessions, logged{s, name})
	}
	slices.SortFunc(m.sessions, func(a, b logged) int { return bytes.Compare(a.number, b.number) })
	for name := range m.each(bucketHeads) {
		if m.names[string(bucketSessions)][name] == nil {
			found.report("the head of session %q, which has no entry", name)
		}
	}
	values, marks := m.names[string(bucketShared)], m.names[string(bucketSharedNames)]
	for name, row := range m.each(bucketShared) {
		if _, ok := unseal(kindShared, []byte(name), row); !ok {
			found.report("the checksum of shared value %q", name)
		}
		if marks[name] == nil {
			found.report("shared value %q: its name is missing among the names", name)
		}
	}
	for name, mark := range m.each(bucketSharedNames) {
		if _, ok := unseal(kindName, []byte(name), mark); !ok {
			found.report("the checksum of the name of shared value %q", name)
		}
		if values[name] == nil {
			found.report("shared value %q is missing", name)
		}
	}
}

// each yields the rows of a bucket in the order of their names.
func (m *directory) each(bucket []byte) func(yield func(name string, row []byte) bool) {
	return func(yield func(string, []byte) bool) {
		all := m.names[string(bucket)]
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

// findings collects inconsistencies.
type findings struct {
	errs []error
	more int
}

// maxFindings is how many findings are kept; further ones are counted.
const maxFindings = 20

func (f *findings) report(format string, args ...any) {
	if len(f.errs) == maxFindings {
		f.more++
		return
	}
	f.errs = append(f.errs, fmt.Errorf("%w: %w", backend.ErrDamaged, fmt.Errorf(format, args...)))
}

func (f *findings) err() error {
	if f.more > 0 {
		return errors.Join(append(f.errs, fmt.Errorf("and %d more", f.more))...)
	}
	return errors.Join(f.errs...)
}

// reader reads the rows under the numbers of a directory's sessions, then the rows that a later directory has in
// addition, and reports inconsistencies.
//
// It reads in short transactions: a long one makes the file grow with each commit, and may block a commit.
type reader struct {
	of    *Backend
	found *findings
	read  map[string]*extent // by number

	// For a copy; nil for a check, which leaves what records say to its caller.
	put    func(bucket, k, row []byte) error
	sum    func(record []byte) uint32
	vacuum bool // snapshots are copied too, and a record that is damaged is not
}

// extent says how far the rows under a number were read.
type extent struct {
	next  uint64 // seq
	chain backend.Chain
}

// Limits of the rows and bytes that one transaction reads.
const (
	sliceRows  = 512
	sliceBytes = 1 << 20
)

// slice holds the rows that one transaction read.
type slice struct {
	rows  [][3][]byte // bucket, key and row
	bytes int
}

func (s *slice) full() bool { return len(s.rows) >= sliceRows || s.bytes >= sliceBytes }

func (s *slice) add(bucket, k, row []byte) {
	s.rows = append(s.rows, [3][]byte{bucket, bytes.Clone(k), bytes.Clone(row)})
	s.bytes += len(k) + len(row)
}

// bring reads the rows that directory to, which is later than the one before, has in addition, and returns their number.
// A copy ends with the first damaged session.
func (r *reader) bring(ctx context.Context, to directory) (n int, err error) {
	for _, l := range to.sessions {
		x := r.read[string(l.number)]
		if x == nil {
			x = &extent{next: 1}
			r.read[string(l.number)] = x
		} else if l.head != nil && x.next > l.head.last {
			continue
		}
		for more := true; more && err == nil; {
			var s slice
			if err = r.of.view(ctx, func(tx *bbolt.Tx) error {
				more = r.slice(tx, l, x, &s)
				return nil
			}); err == nil && r.put != nil {
				err = r.found.err()
			}
			for i := 0; i < len(s.rows) && err == nil && r.put != nil; i++ {
				err = r.put(s.rows[i][0], s.rows[i][1], s.rows[i][2])
			}
			n += len(s.rows)
		}
		if err != nil {
			return n, err
		}
	}
	return n, err
}

// slice reads records of a session, and compares them with its head after the last. Its snapshot may be of a later
// record than the directory.
func (r *reader) slice(tx *bbolt.Tx, l logged, x *extent, s *slice) (more bool) {
	if l.head == nil {
		return false
	}
	if x.next == 1 {
		r.beside(tx, l, s)
	}
	c := tx.Bucket(bucketRecords).Cursor()
	k, row := c.Seek(l.key(x.next))
	for ; bytes.HasPrefix(k, l.number) && x.next <= l.head.last; k, row = c.Next() {
		if s.full() {
			return true
		}
		if seq := l.seqOf(k); seq != x.next {
			r.found.report("session %q: record %d after record %d", l.name, seq, x.next-1)
			return false
		}
		if _, ok := recordIDs(k, row); !ok {
			r.found.report("session %q: the ids of record %d", l.name, x.next)
			return false
		}
		if _, ok := unseal(kindRecord, k, row); r.vacuum && !ok {
			r.found.report("session %q: record %d is not what was written", l.name, x.next)
			return false
		}
		if r.put != nil {
			data, _, _ := splitRecord(row)
			x.chain = x.chain.Add(r.sum(data[checksumBytes:]))
		}
		x.next++
		s.add(bucketRecords, k, row)
	}
	switch {
	case x.next <= l.head.last:
		r.found.report("session %q: its last record is %d, and its head says %d", l.name, x.next-1, l.head.last)
	case r.put != nil && x.chain != l.head.chain:
		r.found.report("the records of session %q are not those that were written: the chain over 1 to %d is %08x, and should be %08x",
			l.name, l.head.last, x.chain.Sum, l.head.chain.Sum)
	case bytes.HasPrefix(k, l.number): // it may have grown since
		now, err := find(tx, l.name)
		if err == nil && bytes.Equal(now.number, l.number) {
			err = headOf(tx, now).Err()
		}
		if err != nil && !errors.Is(err, backend.ErrNotFound) {
			r.found.report("session %q: key %x is behind the last record that its head says: %w", l.name, k, err)
		}
	}
	return false
}

// beside reads a session's snapshot and checks its label, which a copy writes anew.
func (r *reader) beside(tx *bbolt.Tx, l logged, s *slice) {
	row := tx.Bucket(bucketSnapshots).Get(l.number)
	switch {
	case r.vacuum && row != nil:
		s.add(bucketSnapshots, l.number, row)
	case r.put == nil && row != nil:
		if _, ok := unseal(kindSnapshot, l.number, row); !ok {
			r.found.report("session %q: the checksum of the snapshot", l.name)
		}
	}
	if r.put == nil {
		label, ok := unseal(kindLabel, l.key(0), tx.Bucket(bucketRecords).Get(l.key(0)))
		now, err := find(tx, l.name)
		renamed := err != nil || !bytes.Equal(now.number, l.number) // or deleted
		if (!ok || !bytes.Equal(label, l.label(l.name))) && !renamed {
			r.found.report("session %q: its name and entry are missing beside its records", l.name)
		}
	}
}
