package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// index is what a session's rows in bucketIDs add up to, in whatever order: their number
// and the sum of their checksums.
type index struct {
	rows uint64
	sum  uint32
}

func (x index) add(key, value []byte) index {
	return index{x.rows + 1, x.sum + sumOf(key, value)}
}

// countIndex adds up the session's rows.
func (s session) countIndex(tx *txn) (x index) {
	c := tx.Bucket(bucketIDs).Cursor()
	for k, v := c.Seek(s.number); bytes.HasPrefix(k, s.number); k, v = c.Next() {
		x = x.add(k, v)
	}
	return x
}

// Of an id the index holds a hash: rows are half as long, and ids of any length fit. That
// two ids of a session have one hash of 128 bits does not happen; if it did, the second
// would be taken for used.
const idHashBytes = 16

func (s session) idKey(id string) []byte {
	hash := idHash(id)
	return s.key(hash[:])
}

func idHash(id string) [idHashBytes]byte {
	hash := sha256.Sum256([]byte(id))
	return [idHashBytes]byte(hash[:idHashBytes])
}

// idRow is a row of bucketIDs.
type idRow struct {
	key []byte
	seq uint64
}

// idRows returns the rows of the ids that the records take, in the order of their keys:
// until the commit, bbolt keeps each leaf as one slice, however long it grows, and moves
// all behind a key that it puts in.
func (s session) idRows(records []backend.Record) []idRow {
	var rows []idRow
	for _, r := range records {
		for _, id := range r.IDs {
			rows = append(rows, idRow{s.idKey(id), r.Seq})
		}
	}
	slices.SortStableFunc(rows, func(a, b idRow) int { return bytes.Compare(a.key, b.key) })
	return rows
}

// counts remembers which sessions' rows have been counted since the file was opened, and
// found to be whole. It forgets all when it has so many.
type counts struct {
	mu sync.Mutex
	db *bbolt.DB // after a failed commit there is another one
	at map[uint64]bool
}

const maxCounts = 1 << 16

func (c *counts) has(db *bbolt.DB, number []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db == db && c.at[binary.BigEndian.Uint64(number)]
}

func (c *counts) put(db *bbolt.DB, number []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != db || len(c.at) == maxCounts {
		c.db, c.at = db, map[uint64]bool{}
	}
	c.at[binary.BigEndian.Uint64(number)] = true
}

func (c *counts) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.db, c.at = nil, nil
}

// checkIndex reports whether the session's rows are those that were written. They are
// counted when they are first asked for; what is lost while the file is open is not seen.
func (b *Backend) checkIndex(tx *txn, name string, s session) error {
	switch {
	case s.head != nil && b.counts.has(tx.DB(), s.number):
		return nil
	case s.head == nil:
		return fmt.Errorf("%w: session %q has lost its head", backend.ErrIndex, name)
	}
	// Rows that are there count for nothing if a search does not find them.
	if err := pathsOf(tx).sound(bucketIDs, s.number); err != nil {
		return fmt.Errorf("%w: session %q: %w", backend.ErrIndex, name, err)
	}
	x := s.countIndex(tx)
	if want := s.head.index; want != x {
		return fmt.Errorf("%w: session %q has %d rows of sum %08x, want %d of sum %08x", backend.ErrIndex, name, x.rows, x.sum, want.rows, want.sum)
	}
	b.counts.put(tx.DB(), s.number)
	return nil
}
