package bolt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// index is what a session's rows in bucketIDs add up to: their number and the sum of their checksums.
type index struct {
	rows uint64
	sum  uint32
}

func (x index) add(row []byte) index {
	return index{x.rows + 1, x.sum + binary.BigEndian.Uint32(row)}
}

// Of an id the index holds a hash, so that ids of any length fit. That two ids of a session have one
// hash of 128 bits does not happen; if it did, the second would be taken for used.
type idHash [16]byte

func hashID(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:])
}

// appendIDs appends the value of a record's row in bucketIDs.
func appendIDs(dst []byte, ids []string) []byte {
	for _, id := range ids {
		hash := hashID(id)
		dst = append(dst, hash[:]...)
	}
	return dst
}

// known is what is known of sessions since the file was opened: which ids they have, and whether the ways
// to their rows have been looked over. Ids are learned from what is committed alone, so a commit that
// fails leaves nothing behind.
type known struct {
	mu    sync.Mutex
	db    *bbolt.DB // after a failed commit or a vacuum there is another one
	ids   map[uint64]*idSet
	total int // of ids in all sets
	sound map[uint64]bool
}

// All is forgotten when so many ids, or sessions, are known.
const (
	maxKnownIDs      = 1 << 20
	maxKnownSessions = 1 << 16
)

// idSet is the ids of a session's records up to one.
type idSet struct {
	last  uint64
	index index
	seqs  map[idHash]uint64
}

// forget drops what is known of another opening of the file. The caller has the lock.
func (n *known) forget(db *bbolt.DB) {
	if n.db != db || n.total > maxKnownIDs || len(n.ids) > maxKnownSessions || len(n.sound) > maxKnownSessions {
		n.db, n.ids, n.total, n.sound = db, map[uint64]*idSet{}, 0, map[uint64]bool{}
	}
}

func (n *known) isSound(db *bbolt.DB, number []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.db == db && n.sound[binary.BigEndian.Uint64(number)]
}

func (n *known) setSound(db *bbolt.DB, number []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget(db)
	n.sound[binary.BigEndian.Uint64(number)] = true
}

// add adds the ids of a batch that is committed. hashes are those of its records in turn.
func (n *known) add(db *bbolt.DB, number []byte, h head, records []backend.Record, hashes []idHash) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget(db)
	id := binary.BigEndian.Uint64(number)
	set := n.ids[id]
	switch after := h.last - uint64(len(records)); {
	case set == nil && after == 0:
		set = &idSet{seqs: map[idHash]uint64{}}
		n.ids[id] = set
	case set == nil || set.last != after:
		return // it is read when it is needed
	}
	for _, r := range records {
		for range r.IDs {
			set.seqs[hashes[0]] = r.Seq
			hashes = hashes[1:]
		}
	}
	n.total += len(records)
	set.last, set.index = h.last, h.index
}

// lookup calls found with the seqs of ids, 0 for those that no record up to the head's last takes. It
// reads the rows that have not been read since the file was opened. Where they are not what was written
// it fails with [backend.ErrIndex], and calls found with what they say all the same.
func (n *known) lookup(tx *bbolt.Tx, s session, hashes []idHash, found func(i int, seq uint64)) error {
	if s.head == nil {
		return fmt.Errorf("%w: session %d has lost its head", backend.ErrIndex, s.id())
	}
	n.mu.Lock()
	n.forget(tx.DB())
	set := n.ids[s.id()]
	if set == nil {
		set = &idSet{seqs: map[idHash]uint64{}}
	}
	fresh := idSet{set.last, set.index, map[idHash]uint64{}}
	n.mu.Unlock()
	var err error
	if fresh.last < s.head.last {
		err = fresh.read(tx, s)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, hash := range hashes {
		seq := fresh.seqs[hash]
		if seq == 0 && set.seqs[hash] <= s.head.last {
			seq = set.seqs[hash]
		}
		found(i, seq)
	}
	// What a transaction that writes sees may not be committed.
	if err != nil || tx.Writable() || fresh.last <= set.last || n.db != tx.DB() || n.ids[s.id()] != nil && n.ids[s.id()] != set {
		return err
	}
	for hash, seq := range fresh.seqs {
		set.seqs[hash] = seq
	}
	n.total += len(fresh.seqs)
	set.last, set.index = fresh.last, fresh.index
	n.ids[s.id()] = set
	return nil
}

// read reads the rows behind those that are in the set, up to the head's last record.
func (set *idSet) read(tx *bbolt.Tx, s session) (err error) {
	defer func() {
		if p := recover(); p != nil { // of bbolt, about a page that is damaged
			err = fmt.Errorf("%w: session %d: %v", backend.ErrIndex, s.id(), p)
		}
	}()
	c := tx.Bucket(bucketIDs).Cursor()
	for k, row := c.Seek(s.key(set.last + 1)); ; k, row = c.Next() {
		seq := s.seqOf(k)
		if seq == 0 || seq > s.head.last {
			break
		}
		hashes, ok := unseal(kindIDs, k, row)
		if !ok {
			err = fmt.Errorf("%w: session %d: the row of the ids of record %d", backend.ErrIndex, s.id(), seq)
			continue
		}
		for ; len(hashes) >= len(idHash{}); hashes = hashes[len(idHash{}):] {
			set.seqs[idHash(hashes)] = seq
		}
		set.index = set.index.add(row)
	}
	if set.last = s.head.last; err == nil && set.index != s.head.index {
		err = fmt.Errorf("%w: session %d has %d rows of sum %08x, want %d of sum %08x",
			backend.ErrIndex, s.id(), set.index.rows, set.index.sum, s.head.index.rows, s.head.index.sum)
	}
	return err
}
