package bolt

import (
	"context"
	"io"

	bbolt "go.etcd.io/bbolt"
)

// SetCommit makes the backend commit transactions with f. If f is nil, the backend uses bbolt's commit again.
func (b *Backend) SetCommit(f func(tx *bbolt.Tx) error) {
	b.writerLock <- struct{}{}
	defer func() { <-b.writerLock }()
	if b.commit = f; f == nil {
		b.commit = (*bbolt.Tx).Commit
	}
}

// OpenReads returns the number of open read transactions.
func (b *Backend) OpenReads() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.handle.db.Stats().OpenTxN
}

// InTx calls f with a read transaction.
func (b *Backend) InTx(f func(tx *bbolt.Tx)) error {
	return b.view(context.Background(), func(tx *bbolt.Tx) error {
		f(tx)
		return nil
	})
}

// Writing reports whether the writer lock is locked.
func (b *Backend) Writing() bool { return len(b.writerLock) > 0 }

// RewriteMeta calls rewriteMeta with the current meta page of a file.
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

// setOptions calls f to change the options. The function restore restores the old options.
func (b *Backend) setOptions(f func(*Options)) (restore func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.opts
	f(&b.opts)
	return func() { b.setOptions(func(o *Options) { *o = before }) }
}

// FailRewriteMeta makes rewriteMeta of b fail until restore is called.
func FailRewriteMeta(b *Backend, err error) (restore func()) {
	return b.setOptions(func(o *Options) { o.rewriteMeta = func(durableFile, *metaPage) error { return err } })
}

// SetSyncDir makes the backend sync directories with f until restore is called.
func SetSyncDir(b *Backend, f func(dir string) error) (restore func()) {
	return b.setOptions(func(o *Options) { o.syncDir = f })
}

// SetMaxCachedIDs sets maxCachedIDs until restore is called.
func SetMaxCachedIDs(n int) (restore func()) {
	before := maxCachedIDs
	maxCachedIDs = n
	return func() { maxCachedIDs = before }
}

// OnRow makes the backend call f with the length of each row that it reads, until restore is called.
func OnRow(f func(bytes int)) (restore func()) {
	onRow = f
	return func() { onRow = nil }
}

// IDRowsRead returns the number of rows that the backend has read for their ids.
func (b *Backend) IDRowsRead() int64 { return b.ids.rowsRead.Load() }

// Seal returns the stored form of a row of kind k.
func Seal(k byte, key, value []byte) []byte {
	if kind(k) == kindRecord {
		return sealRecord(key, value, nil)
	}
	return seal(kind(k), key, value)
}
