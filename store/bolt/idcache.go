package bolt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// idHash is the hash of an id. Rows contain hashes, so that ids of any length fit. Two ids of a session are assumed
// not to have the same 128-bit hash; if they do, the second is refused as taken.
type idHash [16]byte

func hashID(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:])
}

// hashIDs returns the hashes of all ids of the records, in order.
func hashIDs(records []backend.Record) (hashes []idHash) {
	for _, r := range records {
		for _, id := range r.IDs {
			hashes = append(hashes, hashID(id))
		}
	}
	return hashes
}

// idCache caches the ids of sessions. For each session it has two sets of ids: those that were in no run at the
// session's first look-up, and those added since then.
//
// The cache is emptied when the database handle changes. If it has too many sessions, or if too many ids were added
// since the last reduction, it is reduced to the session in use.
type idCache struct {
	mu       sync.Mutex
	db       *bbolt.DB // replaced after a failed commit and by a vacuum
	sessions map[uint64]*sessionIDs
	added    int          // number of ids added since the last reduction
	rowsRead atomic.Int64 // for tests
}

const maxCachedSessions = 1 << 16

// maxCachedIDs limits the number of cached ids of all sessions together, except the session in use. Tests lower it.
var maxCachedIDs = 1 << 20

// sessionIDs has the ids of a session's committed records. The fields from and last are the seqs of the first and the
// last of these records. The ids of earlier records are in runs.
type sessionIDs struct {
	pathsChecked bool // whether the pages for the session's records and head were checked

	mu   sync.Mutex
	from uint64 // 0 if no row was read yet
	last uint64
	ids  map[idHash]uint64 // key: hash of the id; value: seq of the record
}

func (n *idCache) session(db *bbolt.DB, number []byte) *sessionIDs {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.db != db {
		n.db, n.sessions, n.added = db, map[uint64]*sessionIDs{}, 0
	}
	id := binary.BigEndian.Uint64(number)
	k := n.sessions[id]
	if k == nil {
		k = &sessionIDs{ids: map[idHash]uint64{}}
		n.sessions[id] = k
	}
	if n.added > maxCachedIDs || len(n.sessions) > maxCachedSessions {
		n.sessions, n.added = map[uint64]*sessionIDs{id: k}, 0
	}
	return k
}

// update locks the sessionIDs of one session and calls f, which may add ids.
func (n *idCache) update(k *sessionIDs, f func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.ids)
	err := f()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.added += len(k.ids) - before
	return err
}

// add adds the ids of committed records. The argument hashes contains the hashes of all ids, in the order of the
// records.
func (n *idCache) add(db *bbolt.DB, number []byte, records []backend.Record, hashes []idHash) {
	if len(records) == 0 {
		return
	}
	k := n.session(db, number)
	_ = n.update(k, func() error {
		if k.last+1 != records[0].Seq { // records between last and the first new record are not cached, so lookup will read them
			return nil
		}
		k.from = max(k.from, 1)
		for _, r := range records {
			for range r.IDs {
				k.ids[hashes[0]] = r.Seq
				hashes = hashes[1:]
			}
			k.last = r.Seq
		}
		return nil
	})
}

// reset empties the cache, which may have ids that a failed transaction wrote.
func (n *idCache) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.db = nil
}

// lookup returns the seqs of ids, with 0 for an id that no record of the session has. It reads the rows that are not
// cached. If the ids of a row are damaged, lookup fails with [backend.ErrIndex].
func (n *idCache) lookup(tx *bbolt.Tx, s session, ids []idHash) (seqs []uint64, err error) {
	k := n.session(tx.DB(), s.number)
	seqs = make([]uint64, len(ids))
	err = n.update(k, func() error {
		if err := n.loadIDs(tx, s, k); err != nil {
			return err
		}
		for i, id := range ids {
			if seq := k.ids[id]; seq <= s.head.Last { // a record with a higher seq belongs to a later commit
				seqs[i] = seq
			}
		}
		return n.lookupInRuns(tx, s, k.from, ids, seqs)
	})
	return seqs, err
}

// lookupInRuns looks up ids in the runs that begin before the seq from.
func (n *idCache) lookupInRuns(tx *bbolt.Tx, s session, from uint64, ids []idHash, seqs []uint64) error {
	return guardIndex(s, func() error {
		c := tx.Bucket(bucketIDs).Cursor()
		for _, run := range runsOf(s.head.Last) {
			for i := range ids {
				if run.First >= from || seqs[i] != 0 {
					continue
				}
				seq, err := s.findInRun(c, run, ids[i])
				if err != nil {
					return err
				}
				n.rowsRead.Add(1)
				seqs[i] = seq
			}
		}
		return nil
	})
}

// guardIndex calls f. If bbolt panics at a damaged page, guardIndex returns an ErrIndex.
func guardIndex(s session, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: session %q: %v", backend.ErrIndex, displayName(s.name), damageReason(p))
		}
	}()
	return f()
}

// loadIDs adds the ids of the records that are neither cached nor in runs, up to the last record of the head.
func (n *idCache) loadIDs(tx *bbolt.Tx, s session, k *sessionIDs) error {
	if k.from == 0 {
		k.last = lastInRuns(s.head.Last)
		k.from = k.last + 1
	}
	if k.last >= s.head.Last {
		return nil
	}
	return guardIndex(s, func() error {
		return s.forEachRecordIDs(tx, k.last+1, s.head.Last, func(seq uint64, hashes []idHash) {
			for _, hash := range hashes {
				k.ids[hash] = seq
			}
			k.last = seq
			n.rowsRead.Add(1)
		})
	})
}
