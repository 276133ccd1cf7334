package bench_test

import (
	"encoding/binary"

	bbolt "go.etcd.io/bbolt"
)

// perBatch has a row per commit, which holds the records of the commit one after the
// other, and a row session ‖ first seq → place per session and commit. A place is the
// number of the commit, and for each event where in the commit's row its record is, how
// long it is, and the hash of its id. Ids are looked up as in batchRows.
type perBatch struct {
	heads
	filter filter
	last   uint64 // commit
}

const (
	placeHead  = 8
	placeBytes = 4 + 4 + 8
)

func (*perBatch) create(tx *bbolt.Tx) error { return createBuckets(tx, bucketRecords, bucketSeqs) }

func (l *perBatch) put(tx *bbolt.Tx, events []*event) error {
	fresh := make([]*event, 0, len(events))
	size := 0
	for _, e := range events {
		hash := hash64(e.id)
		if l.filter.has(e.session, hash) {
			e.taken = holds(fresh, e.session, e.id) || l.find(tx, e.session, e.id) > 0
		}
		if e.taken {
			continue
		}
		l.filter.add(e.session, hash)
		e.seq = l.next(e.session)
		fresh = append(fresh, e)
		size += len(e.record)
	}
	if len(fresh) == 0 {
		return nil
	}

	l.last++
	records := make([]byte, 0, size)
	places, first := map[uint64][]byte{}, map[uint64]uint64{}
	for _, e := range fresh {
		p := places[e.session]
		if p == nil {
			p, first[e.session] = number(l.last), e.seq
		}
		p = binary.BigEndian.AppendUint32(p, uint32(len(records)))
		p = binary.BigEndian.AppendUint32(p, uint32(len(e.record)))
		places[e.session] = binary.BigEndian.AppendUint64(p, hash64(e.id))
		records = append(records, e.record...)
	}
	if err := ascending(tx, bucketRecords).Put(number(l.last), records); err != nil {
		return err
	}
	seqs := ascending(tx, bucketSeqs)
	for session, p := range places {
		if err := seqs.Put(pair(session, first[session]), p); err != nil {
			return err
		}
	}
	return nil
}

// record returns the i-th record of a place, out of its commit's row.
func (*perBatch) record(commit, place []byte, i int) []byte {
	at := placeHead + i*placeBytes
	start := binary.BigEndian.Uint32(place[at:])
	return commit[start : start+binary.BigEndian.Uint32(place[at+4:])]
}

func (l *perBatch) read(tx *bbolt.Tx, session uint64, f func(uint64, []byte) bool) {
	records := tx.Bucket(bucketRecords)
	for k, place := range under(tx.Bucket(bucketSeqs), session) {
		commit := records.Get(place[:placeHead])
		for i := range (len(place) - placeHead) / placeBytes {
			if !f(uint64At(k[8:])+uint64(i), l.record(commit, place, i)) {
				return
			}
		}
	}
}

func (l *perBatch) find(tx *bbolt.Tx, session uint64, id string) uint64 {
	hash := hash64(id)
	records := tx.Bucket(bucketRecords)
	for k, place := range fromLast(tx.Bucket(bucketSeqs), session) {
		for i := range (len(place) - placeHead) / placeBytes {
			if uint64At(place[placeHead+i*placeBytes+8:]) != hash {
				continue
			}
			if idOf(l.record(records.Get(place[:placeHead]), place, i)) == id {
				return uint64At(k[8:]) + uint64(i)
			}
		}
	}
	return 0
}

func (l *perBatch) load(tx *bbolt.Tx, session uint64) int {
	delete(l.filter, session)
	for _, place := range under(tx.Bucket(bucketSeqs), session) {
		for p := place[placeHead:]; len(p) > 0; p = p[placeBytes:] {
			l.filter.add(session, uint64At(p[8:]))
		}
	}
	return len(l.filter[session])
}
