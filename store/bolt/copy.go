package bolt

import (
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"
)

// pauseRemovals stops changes and removals of sessions' rows until resume is called. A second caller waits.
func (b *Backend) pauseRemovals(ctx context.Context) (resume func(), err error) {
	select {
	case b.copying <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	unlock, err := b.lockWriter(ctx) // a commit under way may be removing rows
	if err != nil {
		<-b.copying
		return nil, err
	}
	b.removalsPaused.Store(true)
	unlock()
	return func() {
		b.removalsPaused.Store(false)
		if b.removalsPending.Swap(false) {
			b.sweep(context.Background())
		}
		<-b.copying
	}, nil
}

// replica is a new file that rows are copied to. It is synced after so many bytes: a sync of the backend's file may
// have to wait for what other files have to write.
type replica struct {
	reader
	db    *bbolt.DB
	tx    *bbolt.Tx // under way
	bytes int       // that tx puts
}

const replicaBytes = 8 << 20

// replicate makes an empty replica of the backend in an empty file. The caller has paused removals.
func (b *Backend) replicate(path string, sum func([]byte) uint32, vacuum bool) (*replica, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMmapSize, NoSync: true, NoGrowSync: true,
	})
	if err != nil {
		return nil, err
	}
	r := &replica{reader: reader{of: b, found: &findings{}, read: map[string]*extent{}, sum: sum, vacuum: vacuum}, db: db}
	r.put = r.write
	if err := db.Update(initialise); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

// copy copies the rows of the sessions that there are, and returns how many it has copied.
func (r *replica) copy(ctx context.Context) (m directory, n int, err error) {
	var owned [][]byte
	switch {
	case len(r.read) > 0: // it was checked
	case r.vacuum:
		owned = rowBuckets
	default: // a copy leaves snapshots out
		owned = [][]byte{bucketRecords}
	}
	if m, err = r.of.readDirectory(ctx, r.found, owned...); err == nil {
		err = r.found.err()
	}
	if err == nil {
		n, err = r.bring(ctx, m)
	}
	return m, n, errors.Join(err, r.found.err())
}

func (r *replica) write(bucket, k, row []byte) (err error) {
	if r.tx == nil {
		if r.tx, err = r.db.Begin(true); err != nil {
			return err
		}
	}
	rows := r.tx.Bucket(bucket)
	rows.FillPercent = fillPercent
	if err := rows.Put(k, row); err != nil {
		return err
	}
	if r.bytes += len(k) + len(row); r.bytes < replicaBytes {
		return nil
	}
	return r.commit()
}

func (r *replica) commit() error {
	if r.tx == nil {
		return nil
	}
	err := r.tx.Commit()
	r.tx, r.bytes = nil, 0
	return errors.Join(err, r.db.Sync())
}

// finish writes the named rows of a directory whose other rows were copied, and unlinks all other numbers.
func (r *replica) finish(m directory) error {
	for _, bucket := range nameBuckets {
		for name, row := range m.each(bucket) {
			if err := r.write(bucket, []byte(name), row); err != nil {
				return err
			}
		}
	}
	for _, l := range m.sessions {
		delete(r.read, string(l.number))
		if err := r.write(bucketRecords, l.key(0), seal(kindLabel, l.key(0), l.label(l.name))); err != nil {
			return err
		}
	}
	for n := range r.read {
		if err := r.write(bucketUnlinked, []byte(n), seal(kindUnlinked, []byte(n), nil)); err != nil {
			return err
		}
	}
	if err := r.commit(); err != nil {
		return err
	}
	return r.db.Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(bucketSessions).SetSequence(m.given), setVersion(tx, m.given))
	})
}

// close makes the replica durable.
func (r *replica) close() error {
	var err error
	if r.tx != nil {
		err = r.tx.Rollback()
	}
	return errors.Join(err, r.db.Sync(), r.db.Close())
}
