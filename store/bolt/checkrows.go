package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
)

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
	name  []byte
	head  *head // nil if it is damaged
	last  uint64
	index index
}

// checkRows checks that each session has a number of its own that has been given
// out, that its records have no gap, that they and the rows of its ids are as many as its
// head says, that no head, record, row or snapshot is without its session or record, and
// that shared values are what was written.
func (b *Backend) checkRows(ctx context.Context, found *findings) error {
	c := rowCheck{found: found, tallies: map[string]*tally{}, unlinked: map[string]bool{}}
	if err := b.view(ctx, func(tx *txn) error {
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
		check  func(tx *txn, k, v []byte)
	}{
		{bucketUnlinked, c.staged},
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

// staged takes note of a number that may become a session's while entries are read.
func (c *rowCheck) staged(_ *txn, k, v []byte) {
	if wholeUnlinked(k, v) {
		c.unlinked[string(k)] = true
	}
}

func (c *rowCheck) entry(tx *txn, k, v []byte) {
	s, err := decodeSession(string(k), v)
	if err != nil {
		c.found.add(err)
		return
	}
	n := binary.BigEndian.Uint64(s.number)
	if n == 0 || n > tx.Bucket(bucketSessions).Sequence() {
		c.found.report("session %q: its number %d has not been given out", k, n)
	} else if n > c.given {
		return
	}
	if c.tallies[string(s.number)] != nil {
		c.found.report("session %q: its number %x is another's too", k, s.number)
	}
	t := &tally{name: bytes.Clone(k)}
	c.tallies[string(s.number)] = t
	row := tx.Bucket(bucketHeads).Get(k)
	if row == nil {
		c.found.report("session %q, number %x, has no head", k, s.number)
		return
	}
	switch h, err := decodeHead(string(k), row); {
	case err != nil:
		c.found.add(err)
	case !bytes.Equal(h.number, s.number):
		c.found.report("session %q has the numbers %x and %x", k, s.number, h.number)
	default:
		t.head = &h
	}
}

// head checks that a head has an entry; the rest is checked with that.
func (c *rowCheck) head(tx *txn, k, _ []byte) {
	if tx.Bucket(bucketSessions).Get(k) == nil {
		c.found.report("the head of session %q, which has no entry", k)
	}
}

// unlink checks that an unlinked number is no session's. Whatever is left under it is
// nobody's.
func (c *rowCheck) unlink(tx *txn, k, v []byte) {
	if !wholeUnlinked(k, v) {
		c.found.report("the checksum of the unlinked number %x", k)
		return
	}
	c.unlinked[string(k)] = true
	if t := c.tallies[string(k)]; t != nil {
		if _, known := t.grownTo(tx, k); known {
			c.found.report("number %x is unlinked, but a session's", k)
		}
	}
	if n := binary.BigEndian.Uint64(k); n == 0 || n > tx.Bucket(bucketSessions).Sequence() {
		c.found.report("number %d is unlinked, but has not been given out", n)
	}
}

// of returns the session that a row is of. It is nil if the row is nobody's, with known false,
// or of a session that is not looked at: one that was deleted, or came since.
func (c *rowCheck) of(tx *txn, n []byte) (t *tally, known bool) {
	switch t = c.tallies[string(n)]; {
	case t != nil:
		return t, true
	case c.unlinked[string(n)]:
		return nil, true
	case len(n) != 8:
		return nil, false
	}
	given := binary.BigEndian.Uint64(n)
	return nil, given > c.given && given <= tx.Bucket(bucketSessions).Sequence()
}

// grownTo returns the last record that a session has now; known is false if it has been
// deleted.
func (t *tally) grownTo(tx *txn, n []byte) (last uint64, known bool) {
	s, err := find(tx, string(t.name))
	if err != nil || !bytes.Equal(s.number, n) {
		return 0, false
	}
	if s.head != nil {
		return s.head.last, true
	}
	return s.lastRecord(tx), true
}

func (c *rowCheck) record(tx *txn, k, _ []byte) {
	if len(k) != 16 {
		c.found.report("record key %x", k)
		return
	}
	seq := binary.BigEndian.Uint64(k[8:])
	t, known := c.of(tx, k[:8])
	if t == nil {
		if !known {
			c.found.report("record %d of session number %x, which is not there", seq, k[:8])
		}
		return
	}
	if seq != t.last+1 {
		c.found.report("session number %x: record %d after record %d", k[:8], seq, t.last)
	}
	t.last = seq
	if t.head != nil && seq > t.head.last {
		if last, known := t.grownTo(tx, k[:8]); known && seq > last {
			c.found.report("session number %x: its last record is %d, and its head says %d", k[:8], seq, last)
		}
	}
}

func (c *rowCheck) id(tx *txn, k, v []byte) {
	if len(k) != 8+idHashBytes || len(v) != 8 {
		c.found.report("id key %x with %d bytes", k, len(v))
		return
	}
	t, known := c.of(tx, k[:8])
	if t == nil {
		if !known {
			c.found.report("an id of session number %x, which is not there", k[:8])
		}
		return
	}
	seq := binary.BigEndian.Uint64(v)
	if t.head == nil || seq <= t.head.last {
		t.index = t.index.add(k, v)
	}
	there := seq > 0 && seq <= t.last
	if seq > t.last && (t.head == nil || seq > t.head.last) {
		last, known := t.grownTo(tx, k[:8])
		there = !known || seq <= last
	}
	if !there {
		c.found.report("session number %x: the id with hash %x is in record %d, which is not there", k[:8], k[8:], seq)
	}
}

func (c *rowCheck) snapshot(tx *txn, k, _ []byte) {
	if _, known := c.of(tx, k); !known {
		c.found.report("snapshot of session number %x, which is not there", k)
	}
}

// end checks what only all rows tell.
func (c *rowCheck) end() {
	for n, t := range c.tallies {
		switch {
		case t.head == nil:
			continue
		case t.last < t.head.last:
			c.found.report("session number %x: its last record is %d, and its head says %d", n, t.last, t.head.last)
		}
		if t.head.index != t.index {
			c.found.report("session number %x: the index of its ids has %d rows of sum %08x, and its head says %d of sum %08x",
				n, t.index.rows, t.index.sum, t.head.index.rows, t.head.index.sum)
		}
	}
}

// shared checks that a shared value is what was written, and its name is among the names.
func (c *rowCheck) shared(tx *txn, k, row []byte) {
	switch mark := tx.Bucket(bucketSharedNames).Get(k); {
	case len(row) < 4 || binary.BigEndian.Uint32(row) != sumOf(k, row[4:]):
		c.found.report("the checksum of shared value %q", k)
	case !bytes.Equal(mark, nameMark(k)):
		c.found.report("shared value %q: its name is missing among the names", k)
	}
}

func (c *rowCheck) sharedName(tx *txn, k, mark []byte) {
	switch {
	case !bytes.Equal(mark, nameMark(k)):
		c.found.report("the checksum of the name of shared value %q", k)
	case tx.Bucket(bucketShared).Get(k) == nil:
		c.found.report("shared value %q is missing", k)
	}
}
