package bolt

import (
	"context"
	"io"

	bbolt "go.etcd.io/bbolt"
)

// SetCommit makes f commit transactions. nil means the database itself.
func (b *Backend) SetCommit(f func(tx *bbolt.Tx) error) {
	b.writer <- struct{}{}
	defer func() { <-b.writer }()
	if b.commit = f; f == nil {
		b.commit = (*bbolt.Tx).Commit
	}
}

// OpenReads returns how many read transactions are open.
func (b *Backend) OpenReads() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.handle.db.Stats().OpenTxN
}

// InRead calls f in a read transaction.
func (b *Backend) InRead(f func()) error {
	return b.view(context.Background(), func(*bbolt.Tx) error {
		f()
		return nil
	})
}

// InTx calls f with a read transaction.
func (b *Backend) InTx(f func(tx *bbolt.Tx)) error {
	return b.view(context.Background(), func(tx *bbolt.Tx) error {
		f(tx)
		return nil
	})
}

// Writing reports whether a writer holds the writer lock.
func (b *Backend) Writing() bool { return len(b.writer) > 0 }

// SetSlice makes checks look at so many pages in a transaction until restore is called.
func SetSlice(pages int) (restore func()) {
	before := sliceLeaves
	sliceLeaves = pages
	return func() { sliceLeaves = before }
}

// RewriteMeta is rewriteMeta of a file's current meta page.
func RewriteMeta(file interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}) error {
	metas, err := readMetas(file)
	if err != nil {
		return err
	}
	return rewriteMeta(file, metas.current())
}

// FailRewriteMeta makes rewriteMeta of b fail until restore is called.
func FailRewriteMeta(b *Backend, err error) (restore func()) {
	set := func(f func(durableFile, *metaPage) error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.opts.rewriteMeta = f
	}
	set(func(durableFile, *metaPage) error { return err })
	return func() { set(rewriteMeta) }
}

// Seal returns a row of a kind, as it is stored.
func Seal(k byte, key, value []byte) []byte {
	if kind(k) == kindRecord {
		return sealRecord(key, value, nil)
	}
	return seal(kind(k), key, value)
}

// HashID returns what the index of ids holds of an id.
func HashID(id string) [16]byte { return hashID(id) }
