package bolt

import (
	"context"

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
