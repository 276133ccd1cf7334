package bolt

import (
	"bytes"

	bbolt "go.etcd.io/bbolt"
)

// txn is a transaction. One that only reads reads the file by itself. One that writes leaves
// reading to bbolt, which knows what it has written, and goes ahead on each way in the file.
type txn struct {
	*bbolt.Tx
	tree    mapped // of the buckets, as the transaction found it
	buckets []*bucket
}

func newTxn(tx *bbolt.Tx) *txn { return &txn{Tx: tx, tree: mappedBy(tx)} }

// Bucket returns a bucket, or nil if it is not there.
func (tx *txn) Bucket(name []byte) *bucket {
	for _, b := range tx.buckets {
		if bytes.Equal(b.name, name) {
			return b
		}
	}
	b := &bucket{name: name, bounds: nowhere}
	rows, sequence, ok := tx.find(name)
	if ok {
		b.ahead, b.sequence = rows.cursor(), sequence
	}
	if tx.Writable() {
		b.written = tx.Tx.Bucket(name)
		ok = b.written != nil
	}
	if !ok {
		return nil
	}
	tx.buckets = append(tx.buckets, b)
	return b
}

// find finds a bucket in the file.
func (tx *txn) find(name []byte) (rows mapped, sequence uint64, ok bool) {
	c := tx.tree.cursor()
	c.place(name)
	if k, _ := c.row(); !bytes.Equal(k, name) {
		return mapped{}, 0, false
	}
	leaf := c.leaf()
	rows, sequence, err := tx.tree.bucketIn(must(leaf.element(leaf.at)))
	return must(rows, err), sequence, true
}

// CreateBucket creates a bucket if it is not there.
func (tx *txn) CreateBucket(name []byte) (*bucket, error) {
	if b := tx.Bucket(name); b != nil {
		return b, nil
	}
	if _, err := tx.Tx.CreateBucket(name); err != nil {
		return nil, err
	}
	return tx.Bucket(name), nil
}

// ForEach calls f with the name of each bucket that there was when the transaction began.
func (tx *txn) ForEach(f func(name []byte) error) error {
	c := tx.tree.cursor()
	for name, _ := c.First(); name != nil; name, _ = c.Next() {
		if err := f(name); err != nil {
			return err
		}
	}
	return nil
}

// bucket is a bucket of a transaction.
type bucket struct {
	name     []byte
	ahead    *cursor       // in the file, as the transaction found it; nil if it was not there
	bounds   bounds        // of the leaf to which ahead has gone
	sequence uint64        // as the transaction found it
	written  *bbolt.Bucket // nil if the transaction only reads
}

// nowhere are bounds within which there is no key.
var nowhere = bounds{end: []byte{}}

// goAhead goes the way to a key in the file, if it was not gone just before.
func (b *bucket) goAhead(key []byte) {
	if b.ahead == nil || bytes.Compare(key, b.bounds.first) >= 0 && (b.bounds.end == nil || bytes.Compare(key, b.bounds.end) < 0) {
		return
	}
	b.bounds = nowhere
	b.ahead.place(key)
	b.bounds = b.ahead.bounds()
}

// Get returns the value of a key, or nil if it is not there.
func (b *bucket) Get(key []byte) []byte {
	if b.written != nil {
		b.goAhead(key)
		return b.written.Get(key)
	}
	b.ahead.place(key)
	if k, v := b.ahead.row(); bytes.Equal(k, key) {
		return v
	}
	return nil
}

// Put puts a row.
func (b *bucket) Put(key, value []byte) error {
	b.goAhead(key)
	return b.written.Put(key, value)
}

// Delete removes a row, if it is there.
func (b *bucket) Delete(key []byte) error {
	b.goAhead(key)
	return b.written.Delete(key)
}

// inOrder says that keys are put in their order: full pages are better than half-full ones.
func (b *bucket) inOrder() { b.written.FillPercent = fillPercent }

// Sequence returns the number that the bucket has besides its rows.
func (b *bucket) Sequence() uint64 {
	if b.written != nil {
		return b.written.Sequence()
	}
	return b.sequence
}

// rowCursor walks through rows.
type rowCursor interface {
	First() (k, v []byte)
	Last() (k, v []byte)
	Seek(key []byte) (k, v []byte)
	Next() (k, v []byte)
	Prev() (k, v []byte)
}

// Cursor returns a cursor of the rows.
func (b *bucket) Cursor() rowCursor {
	switch {
	case b.written == nil:
		return b.ahead.tree.cursor()
	case b.ahead == nil:
		return b.written.Cursor()
	}
	return twoCursors{b.ahead.tree.cursor(), b.written.Cursor()}
}

// twoCursors has one go ahead in the file, and returns what the other one finds.
type twoCursors struct {
	ahead   *cursor
	written *bbolt.Cursor
}

func (c twoCursors) First() (k, v []byte) {
	c.ahead.First()
	return c.written.First()
}

func (c twoCursors) Last() (k, v []byte) {
	c.ahead.Last()
	return c.written.Last()
}

func (c twoCursors) Seek(key []byte) (k, v []byte) {
	c.ahead.Seek(key)
	return c.written.Seek(key)
}

func (c twoCursors) Next() (k, v []byte) {
	c.ahead.Next()
	return c.written.Next()
}

func (c twoCursors) Prev() (k, v []byte) {
	c.ahead.Prev()
	return c.written.Prev()
}
