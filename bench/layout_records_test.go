package bench_test

import (
	"bytes"
	"encoding/binary"
	"iter"

	bbolt "go.etcd.io/bbolt"
)

// layout is a way to lay out sessions in a file.
type layout interface {
	// create makes the buckets.
	create(tx *bbolt.Tx) error

	// put writes the events of one commit, except those whose ids are taken, which it
	// marks, and gives each its seq.
	put(tx *bbolt.Tx, events []*event) error

	// read gives a session's records in order until f returns false.
	read(tx *bbolt.Tx, session uint64, f func(seq uint64, record []byte) bool)

	// find returns the seq of the record that takes an id, or 0, by the file alone.
	find(tx *bbolt.Tx, session uint64, id string) uint64

	// load reads what must be in memory before a session's ids can be checked, and
	// returns how many ids that is: 0 where nothing must.
	load(tx *bbolt.Tx, session uint64) int
}

// A name is how records are keyed + how ids are kept.
const noIDs = "session+none"

var layoutNames = []string{"session+id", "session+hash", "session+batch", "global+hash", "batch+batch", "session+filter", noIDs}

func newLayout(name string) layout {
	h, s := heads{}, bySession{}
	switch name {
	case "session+id":
		return &perEvent{heads: h, records: s, ids: idRows{}}
	case "session+hash":
		return &perEvent{heads: h, records: s, ids: newHashRows(s)}
	case "session+batch":
		return &perEvent{heads: h, records: s, ids: newBatchRows(s)}
	case "global+hash":
		g := &byTime{}
		return &perEvent{heads: h, records: g, ids: newHashRows(g)}
	case "batch+batch":
		return &perBatch{heads: h, filter: filter{}}
	case "session+filter":
		return &perEvent{heads: h, records: s, ids: noRows{records: s, filter: filter{}}}
	case noIDs:
		return &perEvent{heads: h, records: s, ids: noRows{records: s}}
	}
	panic("unknown layout " + name)
}

// Buckets.
var (
	bucketRecords = []byte("records")
	bucketSeqs    = []byte("seqs")
	bucketIDs     = []byte("ids")
)

// Keys that ascend, all or within a session, fill their pages better than half.
const fillAscending = 0.9

func ascending(tx *bbolt.Tx, name []byte) *bbolt.Bucket {
	bucket := tx.Bucket(name)
	bucket.FillPercent = fillAscending
	return bucket
}

func createBuckets(tx *bbolt.Tx, names ...[]byte) error {
	for _, name := range names {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return nil
}

func number(n uint64) []byte    { return binary.BigEndian.AppendUint64(nil, n) }
func pair(a, b uint64) []byte   { return binary.BigEndian.AppendUint64(number(a), b) }
func uint64At(b []byte) uint64  { return binary.BigEndian.Uint64(b) }
func idOf(record []byte) string { return string(record[:idBytes]) }

// under gives the rows whose keys begin with the session's number, in order.
func under(bucket *bbolt.Bucket, session uint64) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c, prefix := bucket.Cursor(), number(session)
		for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix) && yield(k, v); k, v = c.Next() {
		}
	}
}

// fromLast gives the same rows, the last first.
func fromLast(bucket *bbolt.Bucket, session uint64) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c, prefix := bucket.Cursor(), number(session)
		var k, v []byte
		if next, _ := c.Seek(number(session + 1)); next == nil {
			k, v = c.Last()
		} else {
			k, v = c.Prev()
		}
		for ; bytes.HasPrefix(k, prefix) && yield(k, v); k, v = c.Prev() {
		}
	}
}

// heads holds the last seq of each session.
type heads map[uint64]uint64

func (h heads) next(session uint64) uint64 {
	h[session]++
	return h[session]
}

// perEvent is a layout with a row per event, made of a way to key records and one to
// keep ids.
type perEvent struct {
	heads
	records recordRows
	ids     idIndex
}

// recordRows is where records are.
type recordRows interface {
	create(tx *bbolt.Tx) error
	put(tx *bbolt.Tx, e *event) error
	get(tx *bbolt.Tx, session, seq uint64) []byte
	read(tx *bbolt.Tx, session uint64, f func(seq uint64, record []byte) bool)
}

func (l *perEvent) create(tx *bbolt.Tx) error {
	if err := createBuckets(tx, bucketIDs); err != nil {
		return err
	}
	return l.records.create(tx)
}

func (l *perEvent) put(tx *bbolt.Tx, events []*event) error {
	for _, e := range events {
		if e.taken = l.ids.taken(tx, e); e.taken {
			continue
		}
		e.seq = l.next(e.session)
		if err := l.records.put(tx, e); err != nil {
			return err
		}
		if err := l.ids.add(tx, e); err != nil {
			return err
		}
	}
	return l.ids.end(tx)
}

func (l *perEvent) read(tx *bbolt.Tx, session uint64, f func(uint64, []byte) bool) {
	l.records.read(tx, session, f)
}

func (l *perEvent) find(tx *bbolt.Tx, session uint64, id string) uint64 {
	return l.ids.find(tx, session, id)
}

func (l *perEvent) load(tx *bbolt.Tx, session uint64) int {
	return l.ids.load(tx, session)
}

// bySession keys records by session ‖ seq.
type bySession struct{}

func (bySession) create(tx *bbolt.Tx) error { return createBuckets(tx, bucketRecords) }

func (bySession) put(tx *bbolt.Tx, e *event) error {
	return ascending(tx, bucketRecords).Put(pair(e.session, e.seq), e.record)
}

func (bySession) get(tx *bbolt.Tx, session, seq uint64) []byte {
	return tx.Bucket(bucketRecords).Get(pair(session, seq))
}

func (bySession) read(tx *bbolt.Tx, session uint64, f func(uint64, []byte) bool) {
	for k, v := range under(tx.Bucket(bucketRecords), session) {
		if !f(uint64At(k[8:]), v) {
			return
		}
	}
}

// byTime keys records by one number for the whole file, with a row session ‖ seq → that
// number beside each.
type byTime struct{ last uint64 }

func (*byTime) create(tx *bbolt.Tx) error { return createBuckets(tx, bucketRecords, bucketSeqs) }

func (t *byTime) put(tx *bbolt.Tx, e *event) error {
	t.last++
	if err := ascending(tx, bucketRecords).Put(number(t.last), e.record); err != nil {
		return err
	}
	return ascending(tx, bucketSeqs).Put(pair(e.session, e.seq), number(t.last))
}

func (*byTime) get(tx *bbolt.Tx, session, seq uint64) []byte {
	return tx.Bucket(bucketRecords).Get(tx.Bucket(bucketSeqs).Get(pair(session, seq)))
}

func (*byTime) read(tx *bbolt.Tx, session uint64, f func(uint64, []byte) bool) {
	records := tx.Bucket(bucketRecords)
	for k, v := range under(tx.Bucket(bucketSeqs), session) {
		if !f(uint64At(k[8:]), records.Get(v)) {
			return
		}
	}
}
