package bolt

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"iter"

	bbolt "go.etcd.io/bbolt"
)

// kind says what a row is. It is part of the row's checksum, so that a row found by its form alone
// is not taken for one of another bucket.
type kind byte

const (
	kindEntry     kind = 'e' // of a session
	kindHead      kind = 'h' // of a session's log
	kindLabel     kind = 'l' // name and entry of a session, beside its log
	kindRecord    kind = 'r'
	kindIDs       kind = 'i' // of a record, in its row
	kindSnapshot  kind = 's'
	kindShared    kind = 'v' // a shared value
	kindName      kind = 'n' // the name of a shared value
	kindUnlinked  kind = 'u'
	checksumBytes      = 4
)

// kinds are those of rows that salvage finds by their checksum.
var kinds = []kind{kindHead, kindEntry, kindLabel, kindSnapshot, kindShared, kindName, kindUnlinked}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rowSum is the checksum of a row: of its key, its value and its kind.
func rowSum(kind kind, key, value []byte) uint32 {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return crc32.Update(sum, castagnoli, []byte{byte(kind)})
}

// kindOf returns the kind that a row is of by its checksum, or 0.
func kindOf(key, row []byte) kind {
	if len(row) < checksumBytes {
		return 0
	}
	base := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, row[checksumBytes:])
	for _, kind := range kinds {
		if crc32.Update(base, castagnoli, []byte{byte(kind)}) == binary.BigEndian.Uint32(row) {
			return kind
		}
	}
	return 0
}

// seal returns what is stored under a key: the checksum and the value.
func seal(kind kind, key, value []byte) []byte {
	return appendSealed(make([]byte, 0, checksumBytes+len(value)), kind, key, value)
}

func appendSealed(dst []byte, kind kind, key, value []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, rowSum(kind, key, value)), value...)
}

// A record's row ends with its ids: the hash (16) of each, their number (4), and a checksum (4) of their own,
// so that damage of the record leaves its ids known.
const idsEnd = 4 + checksumBytes

// sealRecord returns the row of a record.
func sealRecord(key, data []byte, ids []idHash) []byte {
	row := appendSealed(make([]byte, 0, checksumBytes+len(data)+len(ids)*len(idHash{})+idsEnd), kindRecord, key, data)
	from := len(row)
	for _, id := range ids {
		row = append(row, id[:]...)
	}
	row = binary.BigEndian.AppendUint32(row, uint32(len(ids)))
	return binary.BigEndian.AppendUint32(row, rowSum(kindIDs, key, row[from:]))
}

// splitRecord returns the parts of a record's row: the sealed data, and the ids.
func splitRecord(row []byte) (sealed, ids []byte, ok bool) {
	if len(row) < checksumBytes+idsEnd {
		return nil, nil, false
	}
	n := uint64(binary.BigEndian.Uint32(row[len(row)-idsEnd:])) * uint64(len(idHash{}))
	if n > uint64(len(row)-checksumBytes-idsEnd) {
		return nil, nil, false
	}
	at := len(row) - idsEnd - int(n)
	return row[:at:at], row[at:], true
}

// recordIDs returns the hashes of a record's ids, if they are what was written.
func recordIDs(key, row []byte) (hashes []idHash, ok bool) {
	_, ids, ok := splitRecord(row)
	if !ok || rowSum(kindIDs, key, ids[:len(ids)-checksumBytes]) != binary.BigEndian.Uint32(ids[len(ids)-checksumBytes:]) {
		return nil, false
	}
	for ids = ids[:len(ids)-idsEnd]; len(ids) > 0; ids = ids[len(idHash{}):] {
		hashes = append(hashes, idHash(ids))
	}
	return hashes, true
}

// unseal returns the value of a row, a part of it, if the row is what was written under the key.
func unseal(kind kind, key, row []byte) (value []byte, ok bool) {
	if kind == kindRecord {
		row, _, _ = splitRecord(row)
	}
	if len(row) < checksumBytes || binary.BigEndian.Uint32(row) != rowSum(kind, key, row[checksumBytes:]) {
		return nil, false
	}
	return row[checksumBytes:], true
}

// A search looks at this many keys to either side of a key that it has not found: more than a page
// has. One key of a page that is out of order leads a binary search astray.
const nearby = 512

// near returns a row with a key that a binary search does not find, and which accept accepts, or nil. A page
// beside it that cannot be read ends the look.
func near(c *bbolt.Cursor, key []byte, accept func(row []byte) bool) (row []byte) {
	for _, step := range []func() (k, v []byte){c.Prev, c.Next} {
		k, v := c.Seek(key)
		if k == nil {
			k, v = c.Last()
		}
		for i := 0; k != nil && i < nearby; i++ {
			if bytes.Equal(k, key) && accept(v) {
				return v
			}
			k, v = beside(step)
		}
	}
	return nil
}

// beside makes a step of a cursor, which may lead into a page of another session. If that cannot be
// read there is nothing.
func beside(step func() (k, v []byte)) (k, v []byte) {
	defer func() {
		if recover() != nil {
			k, v = nil, nil
		}
	}()
	return step()
}

func anyRow([]byte) bool { return true }

// get returns the value of a key. It is looked for around its place if it is not found there, or not as
// it was written. there says that the key is there, whatever its row is; the cursor is at one of the two then.
func get(c *bbolt.Cursor, kind kind, key []byte) (value []byte, ok, there bool) {
	k, row := c.Seek(key)
	if there = bytes.Equal(k, key); there {
		if value, ok = unseal(kind, key, row); ok {
			return value, true, true
		}
	}
	if row = near(c, key, func(row []byte) bool { _, ok := unseal(kind, key, row); return ok }); row != nil {
		value, _ = unseal(kind, key, row)
		return value, true, true
	}
	if there {
		c.Seek(key)
	}
	return nil, false, there
}

// rows yields the rows of a bucket, nil for none, whose keys begin with a prefix.
func rows(bucket *bbolt.Bucket, prefix []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		if bucket == nil {
			return
		}
		c := bucket.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix) && yield(k, v); k, v = c.Next() {
		}
	}
}

// names yields the names that begin with prefix and are above after, in order, of two
// buckets that hold each name both, with the rows of both. A name that one of them has lost, or has
// out of order, is yielded all the same.
func names(first, second *bbolt.Bucket, prefix, after string) iter.Seq2[string, [2][]byte] {
	return func(yield func(name string, rows [2][]byte) bool) {
		type side struct {
			c    *bbolt.Cursor
			k, v []byte
		}
		begun := after != ""
		// skip goes on to a name that has not been yielded yet, or to nil. Damage may make one
		// of no length.
		skip := func(s *side) {
			for s.k != nil && (begun && string(s.k) <= after || string(s.k) < prefix) {
				s.k, s.v = s.c.Next()
			}
			if !bytes.HasPrefix(s.k, []byte(prefix)) {
				s.k, s.v = nil, nil
			}
		}
		sides := [2]side{{c: first.Cursor()}, {c: second.Cursor()}}
		for i := range sides {
			sides[i].k, sides[i].v = sides[i].c.Seek([]byte(max(prefix, after)))
		}
		for {
			var least []byte
			for i := range sides {
				skip(&sides[i])
				if k := sides[i].k; k != nil && (least == nil || bytes.Compare(k, least) < 0) {
					least = k
				}
			}
			if least == nil {
				return
			}
			var rows [2][]byte
			for i, s := range sides {
				if bytes.Equal(s.k, least) {
					rows[i] = s.v
				}
			}
			after, begun = string(least), true
			if !yield(after, rows) {
				return
			}
		}
	}
}
