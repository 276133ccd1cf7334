package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// find returns a session. Its name stands in two buckets; ErrNotFound means in neither.
func find(tx *txn, name string) (session, error) {
	return assemble(tx, name, tx.Bucket(bucketSessions).Get([]byte(name)), tx.Bucket(bucketHeads).Get([]byte(name)))
}

// assemble makes a session of its entry and its head as they were found; nil means not at
// all.
func assemble(tx *txn, name string, entry, row []byte) (session, error) {
	switch {
	case entry == nil && row == nil:
		return session{}, backend.ErrNotFound
	case entry == nil:
		_, entry = near(tx.Bucket(bucketSessions).Cursor(), []byte(name))
	case row == nil:
		_, row = near(tx.Bucket(bucketHeads).Cursor(), []byte(name))
	}
	if entry == nil {
		return session{}, fmt.Errorf("%w: session %q has a head but no entry", backend.ErrDamaged, name)
	}
	s, err := decodeSession(name, entry)
	if err != nil {
		return s, err
	}
	// A head that is lost leaves the records readable.
	if h, err := decodeHead(name, row); err == nil {
		if s.head = &h; !bytes.Equal(h.number, s.number) {
			return session{}, fmt.Errorf("%w: session %q has the numbers %x and %x", backend.ErrDamaged, name, s.number, h.number)
		}
	}
	return s, nil
}

// findCreated returns a session that must have been created under the given id.
func findCreated(tx *txn, name, creation string) (session, error) {
	s, err := find(tx, name)
	if err == nil && s.creation != creation {
		err = backend.ErrNotFound
	}
	return s, err
}

// around is how many keys to either side near looks at: more than a page has.
const around = 512

// near finds a key that may be in a page in which another one is out of order, so that
// a binary search goes astray. It looks at the keys around the place where a search ends.
func near(c rowCursor, key []byte) (k, v []byte) {
	for _, step := range []func() (k, v []byte){c.Prev, c.Next} {
		k, v := c.Seek(key)
		if k == nil {
			k, v = c.Last()
		}
		for i := 0; k != nil && i < around; i++ {
			if bytes.Equal(k, key) {
				return k, v
			}
			k, v = step()
		}
	}
	return nil, nil
}

// names yields the names that begin with prefix and are above after, in order, of two
// buckets that hold each name both, with what they hold of it. The second may be nil. A
// name that one of them has lost, or has out of order, is yielded all the same.
func names(first, second *bucket, prefix, after string) iter.Seq2[string, [2][]byte] {
	return func(yield func(name string, values [2][]byte) bool) {
		seek := func(b *bucket) (c rowCursor, k, v []byte) {
			if b == nil {
				return nil, nil, nil
			}
			c = b.Cursor()
			k, v = c.Seek([]byte(max(prefix, after)))
			return c, k, v
		}
		// skip goes on to a name that has not been yielded yet, or to nil. Damage may make one
		// of no length.
		begun := after != ""
		skip := func(c rowCursor, k, v []byte) ([]byte, []byte) {
			for k != nil && (begun && string(k) <= after || string(k) < prefix) {
				k, v = c.Next()
			}
			if !bytes.HasPrefix(k, []byte(prefix)) {
				return nil, nil
			}
			return k, v
		}
		c1, k1, v1 := seek(first)
		c2, k2, v2 := seek(second)
		for {
			k1, v1 = skip(c1, k1, v1)
			k2, v2 = skip(c2, k2, v2)
			var goOn bool
			switch order := bytes.Compare(k1, k2); {
			case k1 == nil && k2 == nil:
				return
			case k2 == nil || k1 != nil && order < 0:
				after = string(k1)
				goOn = yield(after, [2][]byte{v1, nil})
			case k1 == nil || order > 0:
				after = string(k2)
				goOn = yield(after, [2][]byte{nil, v2})
			default:
				after = string(k1)
				goOn = yield(after, [2][]byte{v1, v2})
			}
			if begun = true; !goOn {
				return
			}
		}
	}
}

// lastRecord returns the seq of the session's last record in bucketRecords.
func (s session) lastRecord(tx *txn) uint64 {
	c := tx.Bucket(bucketRecords).Cursor()
	next := number(binary.BigEndian.Uint64(s.number) + 1)
	k, _ := c.Seek(next)
	if k == nil {
		k, _ = c.Last()
	} else {
		k, _ = c.Prev()
	}
	return s.seqOf(k)
}

// seqOf returns the seq of a record's key, or 0 if it is not of the session.
func (s session) seqOf(k []byte) uint64 {
	if len(k) != 16 || !bytes.HasPrefix(k, s.number) {
		return 0
	}
	return binary.BigEndian.Uint64(k[8:])
}

// end returns the log's last seq. Head and records must agree on it; if they do not,
// damaged is the first seq of which it is in doubt whether it is the log's.
func (s session) end(tx *txn) (last, damaged uint64) {
	if s.head == nil {
		last = s.lastRecord(tx)
		return last, last + 1
	}
	last = s.head.last
	c := tx.Bucket(bucketRecords).Cursor()
	var after []byte
	if last == 0 {
		after, _ = c.Seek(s.number)
	} else {
		if k, _ := s.seek(c, last); k == nil {
			return last, last
		}
		after = beside(c.Next) // if it cannot be read, the head is believed
	}
	if bytes.HasPrefix(after, s.number) {
		return max(last, s.seqOf(after)), last + 1
	}
	return last, 0
}
