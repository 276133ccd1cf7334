package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// directory has the rows outside rowBuckets, as of one transaction, and the sessions that these rows describe. The
// rows in rowBuckets can be read later, in many short transactions. While [Backend.removalsPaused] is set, writers
// only add rows to rowBuckets.
type directory struct {
	lastNumber uint64       // last assigned session number
	names      [][]nameRows // by index in nameBuckets
	sessions   []session    // ordered by number; damaged sessions are omitted
	damaged    []string     // numbers of damaged sessions
	scopes     [][2][]byte  // keys and rows of bucketScopes
	unlinked   []string     // numbers of deleted sessions
	families   [][2][]byte  // keys and rows of bucketFamilies
}

// nameBuckets are pairs of buckets that should have the same names as keys.
var nameBuckets = [][2][]byte{{bucketSessions, bucketHeads}, {bucketShared, bucketSharedNames}}

// rowBuckets have rows whose keys begin with the number of a session.
var rowBuckets = [][]byte{bucketRecords, bucketIDs, bucketSnapshots}

// readDirectory reads the rows outside rowBuckets in one transaction and reports inconsistencies. It also reports
// rows in the buckets owned that belong to no session. The caller has paused removals.
func (b *Backend) readDirectory(ctx context.Context, found *findings, owned ...[]byte) (m directory, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		m.lastNumber = tx.Bucket(bucketSessions).Sequence()
		if stored := tx.Bucket(bucketMeta).Get(keyNumbers); !bytes.Equal(stored, number(m.lastNumber)) {
			found.report("the two copies of the last session number differ: %d and %x", m.lastNumber, stored)
		}
		for k, row := range rows(tx.Bucket(bucketUnlinked), nil) {
			if _, ok := unseal(kindUnlinked, k, row); !ok || len(k) != 8 {
				found.report("the row of the deleted session number %x is damaged", k)
				continue
			}
			m.unlinked = append(m.unlinked, string(k))
		}
		for _, pair := range nameBuckets {
			all := namesInEither(tx.Bucket(pair[0]), tx.Bucket(pair[1]), "", "", math.MaxInt)
			for i := range all {
				all[i].rows = [2][]byte{bytes.Clone(all[i].rows[0]), bytes.Clone(all[i].rows[1])}
			}
			m.names = append(m.names, all)
		}
		for k, row := range rows(tx.Bucket(bucketScopes), nil) {
			if _, ok := unseal(kindScope, k, row); !ok {
				found.report("the version of the shared values of %q is damaged", displayName(string(k)))
				continue
			}
			m.scopes = append(m.scopes, [2][]byte{bytes.Clone(k), bytes.Clone(row)})
		}
		m.readSessions(tx, found)
		m.readFamilies(tx, found)
		m.checkShared(found)
		for _, bucket := range owned {
			m.checkStrays(tx, bucket, found)
		}
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if !slices.ContainsFunc(buckets, func(b []byte) bool { return bytes.Equal(b, name) }) {
				found.report("bucket %q is unknown in this file version", name)
			}
			return nil
		})
	})
	return m, err
}

// readSessions decodes the sessions and reports damaged ones.
func (m *directory) readSessions(tx *bbolt.Tx, found *findings) {
	owners := map[string]string{}
	for _, n := range m.unlinked {
		owners[n] = "none"
	}
	for _, n := range m.names[0] {
		s, err := decodeSession(n.name, n.rows[0], n.rows[1])
		if err != nil {
			found.report("%w", err)
			if len(s.number) > 0 {
				m.damaged = append(m.damaged, string(s.number))
			}
			continue
		}
		if other, taken := owners[string(s.number)]; taken || s.id() == 0 || s.id() > m.lastNumber {
			found.report("session %q: its number %x was never assigned, or another session has it too (%s)", displayName(n.name), s.number, other)
		}
		owners[string(s.number)] = n.name
		m.sessions = append(m.sessions, s)
	}
	slices.SortFunc(m.sessions, func(a, b session) int { return bytes.Compare(a.number, b.number) })
}

// checkShared reports shared values that are damaged or are missing from one of their two buckets.
func (m *directory) checkShared(found *findings) {
	for _, n := range m.names[1] {
		_, valueOK := unseal(kindShared, []byte(n.name), n.rows[0])
		_, nameOK := unseal(kindName, []byte(n.name), n.rows[1])
		if !valueOK || !nameOK {
			found.report("shared value %q is missing or damaged (its row is intact: %t; the row of its name: %t)", displayName(n.name), valueOK, nameOK)
		}
	}
}

// checkStrays reports rows of a bucket that belong to no session. Such rows can remain if damage removed the
// session's entry.
func (m *directory) checkStrays(tx *bbolt.Tx, bucket []byte, found *findings) {
	numbers := slices.Concat(m.unlinked, m.damaged)
	for _, l := range m.sessions {
		numbers = append(numbers, string(l.number))
	}
	slices.Sort(numbers)
	c, from := tx.Bucket(bucket).Cursor(), number(0)
	for _, n := range append(numbers, strings.Repeat("\xff", 17)) { // the last element is greater than all keys
		k, _ := c.Seek(from)
		for i := 0; k != nil && string(k) < n && i < rowsPerTx; i++ {
			found.report("bucket %q has key %x, which belongs to no session", bucket, k)
			k, _ = c.Next()
		}
		from = number(session{number: []byte(n)}.id() + 1)
	}
}

// findings collects inconsistencies, up to maxFindings.
type findings struct {
	errs []error
	n    int
}

const maxFindings = 20

func (f *findings) report(format string, args ...any) {
	if f.n++; f.n > maxFindings {
		return
	}
	err := fmt.Errorf(format, args...)
	if !errors.Is(err, backend.ErrDamaged) {
		err = fmt.Errorf("%w: %w", backend.ErrDamaged, err)
	}
	f.errs = append(f.errs, err)
}

func (f *findings) err() error {
	if f.n > maxFindings {
		return errors.Join(append(f.errs, fmt.Errorf("%w: %d more problems", backend.ErrDamaged, f.n-maxFindings))...)
	}
	return errors.Join(f.errs...)
}

// sessionReader reads the rows of the sessions in a directory and reports inconsistencies. With a later directory,
// it reads only the rows that were added since the earlier one.
//
// It reads in short transactions. During a long transaction, the file would grow with each commit, and a commit
// might be blocked.
type sessionReader struct {
	backend  *Backend
	found    *findings
	progress map[string]*readProgress // key: session number
	*replica                          // nil for a Check, which does not decode records
}

// readProgress records how far the rows under a number were read.
type readProgress struct {
	next     uint64 // the next seq to read
	chain    backend.Chain
	runsUpTo uint64 // last seq whose ids were added to runs of the replica
}

// Limits of the rows and bytes that one transaction reads.
const (
	rowsPerTx  = 512
	bytesPerTx = 1 << 20
)

// readNew reads those rows of a directory's sessions that were not read by an earlier call. A copy stops at the
// first damaged session.
func (r *sessionReader) readNew(ctx context.Context, target directory) error {
	for _, l := range target.sessions {
		x := r.progress[string(l.number)]
		if x == nil {
			x = &readProgress{next: 1}
			r.progress[string(l.number)] = x
		} else if x.next > l.head.Last {
			continue
		}
		for more := true; more; {
			err := r.backend.view(ctx, func(tx *bbolt.Tx) (err error) {
				more, err = r.readSlice(tx, l, x)
				return err
			})
			if err == nil && r.replica != nil {
				if err = r.found.err(); err == nil {
					err = r.commitIfFull()
				}
			}
			if err != nil {
				return err
			}
		}
		if r.replica != nil {
			if err := r.putRuns(l, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// readSlice reads records of a session in one transaction. After the last record, it compares the records with the
// session's head.
func (r *sessionReader) readSlice(tx *bbolt.Tx, l session, x *readProgress) (more bool, err error) {
	if x.next == 1 {
		if err := r.readOtherRows(tx, l); err != nil {
			return false, err
		}
	}
	c := tx.Bucket(bucketRecords).Cursor()
	k, row := c.Seek(l.key(x.next))
	for n, size := 0, 0; bytes.HasPrefix(k, l.number) && x.next <= l.head.Last; k, row = c.Next() {
		if n++; n > rowsPerTx || size >= bytesPerTx {
			return true, nil
		}
		size += len(k) + len(row)
		if seq := l.seqOf(k); seq != x.next {
			r.found.report("session %q: record %d follows record %d", displayName(l.name), seq, x.next-1)
			return false, nil
		}
		if hashes, ok := recordIDs(k, row); !ok {
			r.found.report("%w", recordIDsError(l, x.next))
			return false, nil
		} else if r.replica == nil {
			r.checkRun(tx, l, x.next, hashes)
		}
		if r.replica != nil {
			data, ok := unseal(kindRecord, k, row)
			if !ok {
				r.found.report("session %q: the checksum of record %d is wrong", displayName(l.name), x.next)
				return false, nil
			}
			x.chain = x.chain.Add(r.sum(data))
			if err := r.put(bucketRecords, k, row); err != nil {
				return false, err
			}
		}
		x.next++
	}
	switch {
	case x.next <= l.head.Last:
		r.found.report("session %q: the last record is %d, but the head names %d", displayName(l.name), x.next-1, l.head.Last)
	case r.replica != nil && x.chain != l.head.Chain:
		r.found.report("session %q: the chain of the records 1 to %d is %08x, but the head has %08x",
			displayName(l.name), l.head.Last, x.chain.Sum, l.head.Chain.Sum)
	case bytes.HasPrefix(k, l.number): // the log has grown since the directory was read
		now, err := find(tx, l.name)
		if err == nil && bytes.Equal(now.number, l.number) {
			_, err = headOf(tx, now)
		}
		if err != nil && !errors.Is(err, backend.ErrNotFound) {
			r.found.report("session %q: key %x follows the last record that the head names", displayName(l.name), k)
		}
	}
	return false, nil
}

// checkRun reports the ids of a record that are missing from the record's run.
func (r *sessionReader) checkRun(tx *bbolt.Tx, l session, seq uint64, hashes []idHash) {
	// The runs may have changed since the directory was read.
	now, err := findCreated(tx, l.name, l.creation)
	if err != nil || lastInRuns(now.head.Last) < seq {
		return
	}
	for _, run := range runsOf(now.head.Last) {
		for _, hash := range hashes {
			if seq < run.First || seq > run.Last {
				continue
			}
			if at, err := now.findInRun(tx.Bucket(bucketIDs).Cursor(), run, hash); err != nil || at != seq {
				r.found.report("session %q: the sorted ids of the records %d to %d lack an id of record %d", displayName(l.name), run.First, run.Last, seq)
			}
		}
	}
}

// readOtherRows handles the rows of a session that are neither records nor ids. For a vacuum, it copies the
// snapshot. For a check, it checks the snapshot and the label. For a copy it does nothing, because copies have no
// snapshots and finish writes new labels.
func (r *sessionReader) readOtherRows(tx *bbolt.Tx, l session) error {
	row := tx.Bucket(bucketSnapshots).Get(l.number)
	if r.replica != nil {
		if r.vacuum && row != nil {
			return r.put(bucketSnapshots, l.number, row)
		}
		return nil
	}
	if _, ok := unseal(kindSnapshot, l.number, row); row != nil && !ok {
		r.found.report("session %q: the checksum of the snapshot is wrong", displayName(l.name))
	}
	label, ok := unseal(kindLabel, l.key(0), tx.Bucket(bucketRecords).Get(l.key(0)))
	now, err := find(tx, l.name)
	renamed := err != nil || !bytes.Equal(now.number, l.number) // renamed or deleted
	if (!ok || !bytes.Equal(label, l.label())) && !renamed {
		r.found.report("session %q: the label with its name and entry is missing among its records", displayName(l.name))
	}
	return nil
}
