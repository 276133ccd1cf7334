package bolt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Of an id a record's row has a hash, so that ids of any length fit. That two ids of a session have one
// hash of 128 bits does not happen; if it did, the second would be taken for used.
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

// known is what is known of sessions since the file was opened. All of it is forgotten when it is of too many
// sessions or ids.
type known struct {
	mu       sync.Mutex
	db       *bbolt.DB // after a failed commit or a vacuum there is another one
	sessions map[uint64]*knownSession
	ids      int // in all sessions
}

const (
	maxKnownIDs      = 1 << 20
	maxKnownSessions = 1 << 16
)

// knownSession is the ids of a session's committed records up to one.
type knownSession struct {
	sound bool // the ways to its rows have been looked over

	mu   sync.Mutex
	last uint64
	ids  map[idHash]uint64 // seq of the record
}

// of returns what is known of a session.
func (n *known) of(db *bbolt.DB, number []byte) *knownSession {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.db != db || n.ids > maxKnownIDs || len(n.sessions) > maxKnownSessions {
		n.db, n.sessions, n.ids = db, map[uint64]*knownSession{}, 0
	}
	id := binary.BigEndian.Uint64(number)
	k := n.sessions[id]
	if k == nil {
		k = &knownSession{ids: map[idHash]uint64{}}
		n.sessions[id] = k
	}
	return k
}

// add adds the ids of records that are committed. hashes are theirs in turn.
func (n *known) add(db *bbolt.DB, number []byte, records []backend.Record, hashes []idHash) {
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

func (n *known) count(ids int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ids += ids
}

// check returns an error if a record up to the last that is committed takes one of the ids, or if that is not known.
func (n *known) check(db *bbolt.DB, number []byte, last uint64, hashes []idHash) error {
	k := n.of(db, number)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last < last {
		return errUnlearned
	}
	for _, hash := range hashes {
		if k.ids[hash] != 0 {
			return backend.ErrTaken
		}
	}
	return nil
}

// lookup returns the seqs of ids, 0 for those that no record of the session takes. It reads the rows that have
// not been read since the file was opened. Where their ids are not what was written it fails with
// [backend.ErrIndex], and what the others say is returned all the same.
func (n *known) lookup(tx *bbolt.Tx, s session, ids []string) (seqs []uint64, err error) {
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

// read adds the ids of the records behind those that are known, up to the head's last.
func (k *knownSession) read(tx *bbolt.Tx, s session) (err error) {
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
