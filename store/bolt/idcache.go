package bolt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// idHash is the hash of an id, as a record's row stores it: ids of any length fit. Two ids of a session
// with the same hash of 128 bits are not expected; the second would be refused as taken.
type idHash [16]byte

func hashID(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:])
}

// hashIDs returns the hashes of all ids of records, in turn.
func hashIDs(records []backend.Record) (hashes []idHash) {
	for _, r := range records {
		for _, id := range r.IDs {
			hashes = append(hashes, hashID(id))
		}
	}
	return hashes
}

// idCache caches the ids of sessions. It is emptied when it holds too many sessions or ids, and when the
// database handle changes.
type idCache struct {
	mu       sync.Mutex
	db       *bbolt.DB // after a failed commit or a vacuum there is another one
	sessions map[uint64]*sessionIDs
	ids      int // in all sessions
}

const (
	maxCachedIDs      = 1 << 20
	maxCachedSessions = 1 << 16
)

// sessionIDs holds the ids of a session's committed records up to last.
type sessionIDs struct {
	sound bool // the pages on the paths to its rows were checked

	mu   sync.Mutex
	last uint64
	ids  map[idHash]uint64 // seq of the record
}

// of returns the entry of a session.
func (n *idCache) of(db *bbolt.DB, number []byte) *sessionIDs {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.db != db || n.ids > maxCachedIDs || len(n.sessions) > maxCachedSessions {
		n.db, n.sessions, n.ids = db, map[uint64]*sessionIDs{}, 0
	}
	id := binary.BigEndian.Uint64(number)
	k := n.sessions[id]
	if k == nil {
		k = &sessionIDs{ids: map[idHash]uint64{}}
		n.sessions[id] = k
	}
	return k
}

// add adds the ids of committed records. hashes are those of their ids, in order.
func (n *idCache) add(db *bbolt.DB, number []byte, records []backend.Record, hashes []idHash) {
	if len(records) == 0 {
		return
	}
	k := n.of(db, number)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last+1 != records[0].Seq { // the rows are read when they are needed
		return
	}
	for _, r := range records {
		for range r.IDs {
			k.ids[hashes[0]] = r.Seq
			hashes = hashes[1:]
		}
		k.last = r.Seq
	}
	n.count(len(records))
}

func (n *idCache) count(ids int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ids += ids
}

// check returns [backend.ErrTaken] if a record up to last has one of the ids, and errIDsNotCached if the cache does
// not reach last.
func (n *idCache) check(db *bbolt.DB, number []byte, last uint64, hashes []idHash) error {
	k := n.of(db, number)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last < last {
		return errIDsNotCached
	}
	for _, hash := range hashes {
		if k.ids[hash] != 0 {
			return backend.ErrTaken
		}
	}
	return nil
}

// lookup returns the seqs of ids, 0 for an id that no record of the session has. It reads the rows that are not
// cached. If the ids of a row are damaged it fails with [backend.ErrIndex], and still returns the seqs that
// the other rows give.
func (n *idCache) lookup(tx *bbolt.Tx, s session, ids []string) (seqs []uint64, err error) {
	if s.head == nil {
		return make([]uint64, len(ids)), fmt.Errorf("%w: session %d has lost its head", backend.ErrIndex, s.id())
	}
	k := n.of(tx.DB(), s.number)
	k.mu.Lock()
	defer k.mu.Unlock()
	read := len(k.ids)
	if k.last < s.head.last {
		err = k.read(tx, s)
	}
	n.count(len(k.ids) - read)
	for _, id := range ids {
		seq := k.ids[hashID(id)]
		if seq > s.head.last { // of a later commit
			seq = 0
		}
		seqs = append(seqs, seq)
	}
	return seqs, err
}

// read adds the ids of the records after the cached ones, up to the head's last.
func (k *sessionIDs) read(tx *bbolt.Tx, s session) (err error) {
	defer func() {
		if p := recover(); p != nil { // of bbolt, about a page that is damaged
			err = fmt.Errorf("%w: session %d: %v", backend.ErrIndex, s.id(), p)
		}
	}()
	c := tx.Bucket(bucketRecords).Cursor()
	next := k.last + 1
	for key, row := c.Seek(s.key(next)); s.seqOf(key) == next && next <= s.head.last; key, row = c.Next() {
		hashes, ok := recordIDs(key, row)
		if !ok {
			err = fmt.Errorf("%w: session %d: the ids of record %d", backend.ErrIndex, s.id(), next)
		}
		for _, hash := range hashes {
			k.ids[hash] = next
		}
		next++
	}
	if next <= s.head.last {
		err = fmt.Errorf("%w: session %d: record %d is not found", backend.ErrIndex, s.id(), next)
	}
	if err == nil {
		k.last = s.head.last
	}
	return err
}
