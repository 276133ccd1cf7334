package bolt

import (
	"bytes"
	"context"
	"encoding/binary"

	bbolt "go.etcd.io/bbolt"
)

// rowCheck checks rows against the entries and heads that there were at one moment. What stands
// under a session's number is added to and not changed, so it can be read later; of what has been
// added since, the head tells that there is now.
type rowCheck struct {
	found    *findings
	given    uint64            // the last number given out
	tallies  map[string]*tally // sessions, by number
	unlinked map[string]bool
}

// tally is what a check knows of a session.
type tally struct {
	name  []byte
	head  *head // nil in a file of version 1, and if it is damaged
	last  uint64
	index index
}

// checkRows checks that each session has a number of its own that has been given
// out, that its records have no gap, that they and the rows of its ids are as many as its
// head says, that no head, record, row or snapshot is without its session or record, and
// that shared values are what was written.
func (b *Backend) checkRows(ctx context.Context, found *findings) error {
	c := rowCheck{found: found, tallies: map[string]*tally{}, unlinked: map[string]bool{}}
	if err := b.checkEntries(ctx, &c); err != nil {
		return err
	}
	for _, step := range []struct {
		bucket []byte
		check  func(tx *bbolt.Tx, k, v []byte)
	}{
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

// checkEntries checks entries, heads and unlinked numbers. In the transaction it does no more
// than copy them out.
func (b *Backend) checkEntries(ctx context.Context, c *rowCheck) error {
	var noted []byte
	var old bool
	var room copied
	rows := map[string][][2][]byte{}
	if err := b.view(ctx, func(tx *bbolt.Tx) error {
		c.given = tx.Bucket(bucketSessions).Sequence()
		noted = bytes.Clone(tx.Bucket(bucketMeta).Get(keyNumbers))
		old = tx.Bucket(bucketHeads) == nil
		for _, name := range [][]byte{bucketSessions, bucketHeads, bucketUnlinked} {
			bucket := tx.Bucket(name)
			if bucket == nil {
				continue
			}
			cursor := bucket.Cursor()
			for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
				rows[string(name)] = append(rows[string(name)], [2][]byte{room.clone(k), room.clone(v)})
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, row := range rows[string(bucketSessions)] {
		c.entry(row[0], row[1])
	}
	if !old {
		if !bytes.Equal(noted, number(c.given)) {
			c.found.report("of the numbers of sessions the last one given out is %d, or %x", c.given, noted)
		}
		for _, row := range rows[string(bucketHeads)] {
			c.head(row[0], row[1])
		}
		for n, t := range c.tallies {
			if t.head == nil {
				c.found.report("session %q, number %x, has no head", t.name, n)
			}
		}
	}
	for _, row := range rows[string(bucketUnlinked)] {
		c.unlink(row[0], row[1])
	}
	return nil
}

func (c *rowCheck) entry(k, v []byte) {
	s, err := decodeSession(string(k), v)
	if err != nil {
		c.found.add(err)
		return
	}
	if c.tallies[string(s.number)] != nil {
		c.found.report("session %q: its number %x is another's too", k, s.number)
	}
	if n := binary.BigEndian.Uint64(s.number); n == 0 || n > c.given {
		c.found.report("session %q: its number %d has not been given out", k, n)
	}
	c.tallies[string(s.number)] = &tally{name: k}
}

func (c *rowCheck) head(k, v []byte) {
	h, err := decodeHead(string(k), v)
	switch t := c.tallies[string(h.number)]; {
	case err != nil:
		c.found.add(err)
	case t == nil || !bytes.Equal(t.name, k):
		c.found.report("session %q has a head with number %x, and no such entry", k, h.number)
	default:
		t.head = &h
	}
}

// unlink checks that an unlinked number is no session's. Whatever is left under it is
// nobody's.
func (c *rowCheck) unlink(k, v []byte) {
	if !wholeUnlinked(k, v) {
		c.found.report("the checksum of the unlinked number %x", k)
		return
	}
	c.unlinked[string(k)] = true
	if c.tallies[string(k)] != nil {
		c.found.report("number %x is unlinked, but a session's", k)
	}
	if n := binary.BigEndian.Uint64(k); n == 0 || n > c.given {
		c.found.report("number %d is unlinked, but has not been given out", n)
	}
}

// of returns the session that a row is of. It is nil if the row is nobody's, with known false,
// or of a session that is not looked at: one that was deleted, or came since.
func (c *rowCheck) of(tx *bbolt.Tx, n []byte) (t *tally, known bool) {
	if c.unlinked[string(n)] {
		return nil, true
	}
	if t = c.tallies[string(n)]; t != nil || len(n) != 8 {
		return t, t != nil
	}
	given := binary.BigEndian.Uint64(n)
	return nil, given > c.given && given <= tx.Bucket(bucketSessions).Sequence()
}

// grownTo returns the last record that a session has now; known is false if it has been
// deleted.
func (t *tally) grownTo(tx *bbolt.Tx, n []byte) (last uint64, known bool) {
	s, err := find(tx, string(t.name))
	if err != nil || !bytes.Equal(s.number, n) {
		return 0, false
	}
	if s.head != nil {
		return s.head.last, true
	}
	return s.lastRecord(tx), true
}

func (c *rowCheck) record(tx *bbolt.Tx, k, _ []byte) {
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

func (c *rowCheck) id(tx *bbolt.Tx, k, v []byte) {
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

func (c *rowCheck) snapshot(tx *bbolt.Tx, k, _ []byte) {
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
		if t.head.index != uncounted && t.head.index != t.index {
			c.found.report("session number %x: the index of its ids has %d rows of sum %08x, and its head says %d of sum %08x",
				n, t.index.rows, t.index.sum, t.head.index.rows, t.head.index.sum)
		}
	}
}

// shared checks that a shared value is what was written, and its name is among the names.
func (c *rowCheck) shared(tx *bbolt.Tx, k, row []byte) {
	names := tx.Bucket(bucketSharedNames)
	if names == nil {
		return
	}
	switch mark := names.Get(k); {
	case len(row) < 4 || binary.BigEndian.Uint32(row) != sumOf(k, row[4:]):
		c.found.report("the checksum of shared value %q", k)
	case !bytes.Equal(mark, nameMark(k)):
		c.found.report("shared value %q: its name is missing among the names", k)
	}
}

func (c *rowCheck) sharedName(tx *bbolt.Tx, k, mark []byte) {
	switch {
	case !bytes.Equal(mark, nameMark(k)):
		c.found.report("the checksum of the name of shared value %q", k)
	case tx.Bucket(bucketShared).Get(k) == nil:
		c.found.report("shared value %q is missing", k)
	}
}
