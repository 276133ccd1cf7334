package bench_test

import (
	"encoding/binary"
	"slices"

	bbolt "go.etcd.io/bbolt"
)

// idIndex knows which ids of a session are taken.
type idIndex interface {
	taken(tx *bbolt.Tx, e *event) bool // by a commit before or by this one
	add(tx *bbolt.Tx, e *event) error
	end(tx *bbolt.Tx) error // of a commit
	find(tx *bbolt.Tx, session uint64, id string) uint64
	load(tx *bbolt.Tx, session uint64) int
}

// hash64 is FNV-1a. Ids that share one are told apart by their records.
func hash64(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return h & hashMask
}

// hashMask is narrowed by a test, so that ids share hashes.
var hashMask = ^uint64(0)

// inFile is an index that needs nothing in memory and has all rows of a commit as the
// commit goes.
type inFile struct{}

func (inFile) end(*bbolt.Tx) error        { return nil }
func (inFile) load(*bbolt.Tx, uint64) int { return 0 }

// idRows has a row session ‖ id → seq per event.
type idRows struct{ inFile }

func (i idRows) taken(tx *bbolt.Tx, e *event) bool { return i.find(tx, e.session, e.id) > 0 }

func (idRows) add(tx *bbolt.Tx, e *event) error {
	return tx.Bucket(bucketIDs).Put(append(number(e.session), e.id...), number(e.seq))
}

func (idRows) find(tx *bbolt.Tx, session uint64, id string) uint64 {
	v := tx.Bucket(bucketIDs).Get(append(number(session), id...))
	if v == nil {
		return 0
	}
	return uint64At(v)
}

// hashRows has a row session ‖ hash of the id → seqs per event. More than one seq is
// ids that share a hash.
type hashRows struct {
	inFile
	records recordRows
}

func newHashRows(records recordRows) hashRows { return hashRows{records: records} }

func (h hashRows) taken(tx *bbolt.Tx, e *event) bool { return h.find(tx, e.session, e.id) > 0 }

func (h hashRows) add(tx *bbolt.Tx, e *event) error {
	ids, key := tx.Bucket(bucketIDs), pair(e.session, hash64(e.id))
	return ids.Put(key, append(slices.Clone(ids.Get(key)), number(e.seq)...))
}

func (h hashRows) find(tx *bbolt.Tx, session uint64, id string) uint64 {
	seqs := tx.Bucket(bucketIDs).Get(pair(session, hash64(id)))
	for ; len(seqs) > 0; seqs = seqs[8:] {
		if seq := uint64At(seqs); idOf(h.records.get(tx, session, seq)) == id {
			return seq
		}
	}
	return 0
}

// filter holds the hashes of the ids of open sessions.
type filter map[uint64]map[uint64]struct{}

func (f filter) has(session, hash uint64) bool {
	_, ok := f[session][hash]
	return ok
}

func (f filter) add(session, hash uint64) {
	if f[session] == nil {
		f[session] = map[uint64]struct{}{}
	}
	f[session][hash] = struct{}{}
}

// grouped returns the events of a commit by session, each in order.
func grouped(events []*event) map[uint64][]*event {
	groups := map[uint64][]*event{}
	for _, e := range events {
		groups[e.session] = append(groups[e.session], e)
	}
	return groups
}

func holds(events []*event, session uint64, id string) bool {
	return slices.ContainsFunc(events, func(e *event) bool { return e.session == session && e.id == id })
}

// batchRows has a row session ‖ first seq → hashes per session and commit. An id that
// the filter lacks is free; one that it has is searched for in the session's rows, the
// newest first, and in the record that the row points to.
type batchRows struct {
	records recordRows
	filter  filter
	pending []*event
}

func newBatchRows(records recordRows) *batchRows {
	return &batchRows{records: records, filter: filter{}}
}

func (r *batchRows) taken(tx *bbolt.Tx, e *event) bool {
	return r.filter.has(e.session, hash64(e.id)) &&
		(holds(r.pending, e.session, e.id) || r.find(tx, e.session, e.id) > 0)
}

func (r *batchRows) add(_ *bbolt.Tx, e *event) error {
	r.filter.add(e.session, hash64(e.id))
	r.pending = append(r.pending, e)
	return nil
}

func (r *batchRows) end(tx *bbolt.Tx) error {
	ids := ascending(tx, bucketIDs)
	for session, events := range grouped(r.pending) {
		row := make([]byte, 0, 8*len(events))
		for _, e := range events {
			row = binary.BigEndian.AppendUint64(row, hash64(e.id))
		}
		if err := ids.Put(pair(session, events[0].seq), row); err != nil {
			return err
		}
	}
	r.pending = r.pending[:0]
	return nil
}

func (r *batchRows) find(tx *bbolt.Tx, session uint64, id string) uint64 {
	hash := hash64(id)
	for k, row := range fromLast(tx.Bucket(bucketIDs), session) {
		for i := 0; i < len(row); i += 8 {
			if uint64At(row[i:]) != hash {
				continue
			}
			if seq := uint64At(k[8:]) + uint64(i/8); idOf(r.records.get(tx, session, seq)) == id {
				return seq
			}
		}
	}
	return 0
}

func (r *batchRows) load(tx *bbolt.Tx, session uint64) int {
	delete(r.filter, session)
	for _, row := range under(tx.Bucket(bucketIDs), session) {
		for ; len(row) > 0; row = row[8:] {
			r.filter.add(session, uint64At(row))
		}
	}
	return len(r.filter[session])
}

// noRows is no index in the file. With a filter, which an opened session gets by reading
// all its records, ids that the filter has are searched for in the records. Without,
// nothing is checked: a lower bound.
type noRows struct {
	inFile
	records recordRows
	filter  filter
}

func (n noRows) taken(tx *bbolt.Tx, e *event) bool {
	return n.filter.has(e.session, hash64(e.id)) && n.find(tx, e.session, e.id) > 0
}

func (n noRows) add(_ *bbolt.Tx, e *event) error {
	if n.filter != nil {
		n.filter.add(e.session, hash64(e.id))
	}
	return nil
}

func (n noRows) find(tx *bbolt.Tx, session uint64, id string) (found uint64) {
	n.records.read(tx, session, func(seq uint64, record []byte) bool {
		if idOf(record) == id {
			found = seq
		}
		return found == 0
	})
	return found
}

func (n noRows) load(tx *bbolt.Tx, session uint64) int {
	if n.filter == nil {
		return 0
	}
	delete(n.filter, session)
	n.records.read(tx, session, func(_ uint64, record []byte) bool {
		n.filter.add(session, hash64(idOf(record)))
		return true
	})
	return len(n.filter[session])
}
