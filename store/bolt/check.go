package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Check reads the whole file and reports what does not fit together: pages, sessions,
// records, the index of ids and shared values. nil means that nothing was found. What records
// say is not looked at.
//
// Others read and write meanwhile. The file is read in short transactions, each of which
// begins where the one before ended: one that is open for long makes the file grow with each
// commit. What is deleted meanwhile takes up its room until the end. A Check waits for a
// Copy and a Vacuum under way, and they for it.
func (b *Backend) Check(ctx context.Context) error {
	letGo, err := b.keepRows(ctx)
	if err != nil {
		return err
	}
	defer letGo()
	var found findings
	if err = b.checkPages(ctx, &found); err == nil && len(found.errs) == found.metas { // else rows cannot be read in order
		err = b.checkRows(ctx, &found)
	}
	return errors.Join(found.err(), err)
}

// findings are what a check has found wrong.
type findings struct {
	errs  []error
	more  int
	metas int // of them, of meta pages
}

// So many findings are enough to know that a file is damaged.
const maxFindings = 20

func (f *findings) report(format string, args ...any) {
	if len(f.errs) == maxFindings {
		f.more++
		return
	}
	f.errs = append(f.errs, fmt.Errorf(format, args...))
}

func (f *findings) err() error {
	if f.more > 0 {
		return errors.Join(append(f.errs, fmt.Errorf("and %d more", f.more))...)
	}
	return errors.Join(f.errs...)
}

// So many leaves are checked in one transaction, or some more. A test takes other steps.
var sliceLeaves = 512

// checkPages checks that the pages that lead to each row are in form, in order and not free: the trees
// of all buckets, a slice of them in each transaction. It has the writer's place for no longer than it
// takes to begin: the list of free pages has to be the transaction's own.
func (b *Backend) checkPages(ctx context.Context, found *findings) error {
	var from []byte // the first key of the bucket that has not been checked
	for i := 0; i < len(buckets); {
		unlock, err := b.lockWriter(ctx)
		if err != nil {
			return err
		}
		unlock = sync.OnceFunc(unlock)
		err = b.use(ctx, func(h *handle) error {
			return h.view(func(tx *bbolt.Tx) error {
				metas, err := readMetas(h.file)
				if err != nil || metas.current() == nil {
					return errors.Join(fmt.Errorf("%w: both meta pages", backend.ErrDamaged), err)
				}
				if doubt := metas.doubt(); doubt != nil && found.metas == 0 {
					found.report("%w", doubt)
					found.metas++
				}
				free, err := readFreelist(h.file, metas.current())
				unlock()
				if err != nil {
					return err
				}
				if from = checkSlice(tx, h, free, buckets[i], from, found); from == nil {
					i++
				}
				return nil
			})
		})
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSlice checks pages of a bucket that lead to keys from a given one on. It returns the first key
// that is left, or nil.
func checkSlice(tx *bbolt.Tx, h *handle, free freelist, name, from []byte, found *findings) (next []byte) {
	bucket := tx.Bucket(name)
	if bucket == nil || bucket.Root() == 0 { // in the page of the bucket's name, which bbolt has read
		return nil
	}
	room := sliceLeaves
	w := walker{pager: h.ways(tx).pages}
	w.wrong = func(_ uint64, err error) { found.report("%w: bucket %q: %w", backend.ErrDamaged, name, err) }
	w.claim = func(id, n uint64) error {
		for i := range n {
			if free.has(id + i) {
				return fmt.Errorf("page %d is in use and on the list of free pages", id+i)
			}
		}
		return nil
	}
	w.leaf = func(p page) error {
		room--
		for _, e := range p.elements {
			if e.flags != 0 {
				return fmt.Errorf("key %.64x has the flags %#x", e.key, e.flags)
			}
		}
		return nil
	}
	w.enter = func(p page, i int) bool {
		switch {
		case from != nil && i+1 < len(p.elements) && bytes.Compare(p.elements[i+1].key, from) <= 0:
			return false
		case room <= 0 && next == nil:
			next = bytes.Clone(p.elements[i].key)
		}
		return next == nil
	}
	w.walk(uint64(bucket.Root()), bounds{}, 0)
	return next
}

// So many rows are looked at in one transaction.
const countedRows = 8192

// eachRow calls f with the rows of a bucket, in their order, in one transaction after the
// other.
func (b *Backend) eachRow(ctx context.Context, name []byte, f func(tx *bbolt.Tx, k, v []byte)) error {
	var after []byte
	for more := true; more; {
		if err := b.view(ctx, func(tx *bbolt.Tx) error {
			more = false
			c := tx.Bucket(name).Cursor()
			k, v := c.Seek(after)
			if after != nil && bytes.Equal(k, after) {
				k, v = c.Next()
			}
			for i := 0; k != nil; k, v = c.Next() {
				if i++; i > countedRows {
					more = true
					return nil
				}
				after = append(after[:0], k...)
				f(tx, k, v)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// rowCheck checks rows against the entries and heads of the sessions that there were when it
// began, each as it was when it was read. What stands under a session's number is added to and not
// changed, so it can be read later; of what has been added since, the head tells that there is now.
type rowCheck struct {
	found    *findings
	given    uint64            // the last number given out when it began
	tallies  map[string]*tally // sessions, by number
	unlinked map[string]bool
}

// tally is what a check knows of a session.
type tally struct {
	session
	name    []byte
	last    uint64 // record that has been seen
	index   index
	labeled bool
}

// checkRows checks that each row but the records is what was written, that each session has a number of its own that has
// been given out, that its records have no gap, that they and the rows of its ids are as many as its
// head says, and that no head, record, row or snapshot is without its session.
func (b *Backend) checkRows(ctx context.Context, found *findings) error {
	c := rowCheck{found: found, tallies: map[string]*tally{}, unlinked: map[string]bool{}}
	if err := b.view(ctx, func(tx *bbolt.Tx) error {
		c.given = tx.Bucket(bucketSessions).Sequence()
		if noted := tx.Bucket(bucketMeta).Get(keyNumbers); !bytes.Equal(noted, number(c.given)) {
			found.report("of the numbers of sessions the last one given out is %d, or %x", c.given, noted)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, step := range []struct {
		bucket []byte
		check  func(tx *bbolt.Tx, k, v []byte)
	}{
		{bucketUnlinked, func(_ *bbolt.Tx, k, _ []byte) { c.unlinked[string(k)] = true }}, // one may become a session's
		{bucketSessions, c.entry},
		{bucketHeads, c.head},
		{bucketUnlinked, c.unlink}, // again: what has been deleted meanwhile is one or the other
		{bucketRecords, c.record},
		{bucketIDs, c.id},
		{bucketSnapshots, c.snapshot},
		{bucketShared, c.shared},
		{bucketSharedNames, c.sharedName},
	} {
		if err := b.eachRow(ctx, step.bucket, step.check); err != nil {
			return err
		}
	}
	c.end()
	return nil
}

func (c *rowCheck) entry(tx *bbolt.Tx, k, v []byte) {
	s, err := assemble(tx, string(k), v, tx.Bucket(bucketHeads).Get(k))
	if err != nil {
		c.found.report("%w", err)
		return
	}
	n := s.id()
	if n == 0 || n > tx.Bucket(bucketSessions).Sequence() {
		c.found.report("session %q: its number %d has not been given out", k, n)
	} else if n > c.given {
		return
	}
	if c.tallies[string(s.number)] != nil {
		c.found.report("session %q: its number %x is another's too", k, s.number)
	}
	if s.head == nil {
		c.found.report("session %q, number %x, has no head, or its checksum is wrong", k, s.number)
	}
	c.tallies[string(s.number)] = &tally{session: s, name: bytes.Clone(k)}
}

// head checks that a head has an entry; the rest is checked with that.
func (c *rowCheck) head(tx *bbolt.Tx, k, _ []byte) {
	if tx.Bucket(bucketSessions).Get(k) == nil {
		c.found.report("the head of session %q, which has no entry", k)
	}
}

// unlink checks that an unlinked number is no session's. Whatever is left under it is
// nobody's.
func (c *rowCheck) unlink(tx *bbolt.Tx, k, v []byte) {
	if _, ok := unseal(kindUnlinked, k, v); !ok || len(k) != 8 {
		c.found.report("the checksum of the unlinked number %x", k)
		return
	}
	c.unlinked[string(k)] = true
	if t := c.tallies[string(k)]; t != nil && t.now(tx) != nil {
		c.found.report("number %x is unlinked, but a session's", k)
	}
	if n := binary.BigEndian.Uint64(k); n == 0 || n > tx.Bucket(bucketSessions).Sequence() {
		c.found.report("number %d is unlinked, but has not been given out", n)
	}
}

// of returns the session that a row is of. It is nil if the row is nobody's, which is reported, or
// of a session that is not looked at: one that was deleted, or came since.
func (c *rowCheck) of(tx *bbolt.Tx, bucket, k []byte) *tally {
	if len(k) < 8 {
		c.found.report("bucket %q: key %x", bucket, k)
		return nil
	}
	t := c.tallies[string(k[:8])]
	given := binary.BigEndian.Uint64(k)
	if t == nil && !c.unlinked[string(k[:8])] && (given <= c.given || given > tx.Bucket(bucketSessions).Sequence()) {
		c.found.report("bucket %q: key %x, of a session that is not there", bucket, k)
	}
	return t
}

// now returns the session as it is now, or nil if it has been deleted.
func (t *tally) now(tx *bbolt.Tx) *session {
	s, err := find(tx, string(t.name))
	if err != nil || !bytes.Equal(s.number, t.number) {
		return nil
	}
	return &s
}

// beyond reports whether a record is behind the session's last one, also as it is now.
func (t *tally) beyond(tx *bbolt.Tx, seq uint64) bool {
	if t.head == nil || seq <= t.head.last {
		return false
	}
	now := t.now(tx)
	return now != nil && now.head != nil && seq > now.head.last
}

func (c *rowCheck) record(tx *bbolt.Tx, k, v []byte) {
	t := c.of(tx, bucketRecords, k)
	if t == nil {
		return
	}
	seq := t.seqOf(k)
	if len(k) == 16 && seq == 0 {
		if label, ok := unseal(kindLabel, k, v); !ok || !bytes.Equal(label, t.label(string(t.name))) {
			c.found.report("session %q: its name and entry beside its records are not what was written", t.name)
		}
		t.labeled = true
		return
	}
	if seq != t.last+1 {
		c.found.report("session number %x: record %d after record %d", t.number, seq, t.last)
	}
	if t.last = seq; t.beyond(tx, seq) {
		c.found.report("session number %x: record %d is behind the last that its head says", t.number, seq)
	}
}

func (c *rowCheck) id(tx *bbolt.Tx, k, v []byte) {
	t := c.of(tx, bucketIDs, k)
	if t == nil {
		return
	}
	seq := t.seqOf(k)
	if _, ok := unseal(kindIDs, k, v); !ok || seq == 0 {
		c.found.report("session number %x: the checksum of the ids of record %d", t.number, seq)
		return
	}
	if t.head == nil || seq <= t.head.last {
		t.index = t.index.add(v)
	}
	if t.beyond(tx, seq) {
		c.found.report("session number %x: ids of record %d, which is not there", t.number, seq)
	}
}

func (c *rowCheck) snapshot(tx *bbolt.Tx, k, v []byte) {
	if c.of(tx, bucketSnapshots, k) == nil {
		return
	}
	if _, ok := unseal(kindSnapshot, k, v); !ok {
		c.found.report("session number %x: the checksum of the snapshot", k)
	}
}

// end checks what only all rows tell.
func (c *rowCheck) end() {
	for n, t := range c.tallies {
		if !t.labeled {
			c.found.report("session %q: its name and entry are missing beside its records", t.name)
		}
		if t.head == nil {
			continue
		}
		if t.last < t.head.last {
			c.found.report("session number %x: its last record is %d, and its head says %d", n, t.last, t.head.last)
		}
		if t.head.index != t.index {
			c.found.report("session number %x: the index of its ids has %d rows of sum %08x, and its head says %d of sum %08x",
				n, t.index.rows, t.index.sum, t.head.index.rows, t.head.index.sum)
		}
	}
}

// shared checks that a shared value is what was written, and its name is among the names.
func (c *rowCheck) shared(tx *bbolt.Tx, k, row []byte) {
	if _, err := sharedData(tx, string(k), row, tx.Bucket(bucketSharedNames).Get(k)); err != nil {
		c.found.report("shared value %q: %w", k, err)
	}
	if tx.Bucket(bucketSharedNames).Get(k) == nil {
		c.found.report("shared value %q: its name is missing among the names", k)
	}
}

func (c *rowCheck) sharedName(tx *bbolt.Tx, k, mark []byte) {
	if _, ok := unseal(kindName, k, mark); !ok {
		c.found.report("the checksum of the name of shared value %q", k)
	} else if tx.Bucket(bucketShared).Get(k) == nil {
		c.found.report("shared value %q is missing", k)
	}
}
