package bolt

import (
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"
)

// keepRows keeps the rows of sessions from being changed or removed until letGo is called. One
// caller at a time has them kept.
func (b *Backend) keepRows(ctx context.Context) (letGo func(), err error) {
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
	b.keeping.Store(true)
	unlock()
	return func() {
		b.keeping.Store(false)
		if b.kept.Swap(false) {
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

// replicate makes an empty replica in an empty file, of a backend whose rows are kept.
func (b *Backend) replicate(path string, sum func([]byte) uint32, vacuum bool) (*replica, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMmapSize, NoSync: true, NoGrowSync: true,
	})
	if err != nil {
		return nil, err
	}
	r := &replica{reader: reader{of: b, found: &findings{}, sum: sum, vacuum: vacuum}, db: db}
	r.put = r.write
	if err := db.Update(initialise); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

// copy copies the rows of the sessions that there are, and returns how many it has copied.
func (r *replica) copy(ctx context.Context) (m moment, n int, err error) {
	if m, err = r.of.takeMoment(ctx, r.found); err == nil {
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

// finish writes the names of a moment, to which the rows have been copied: what stands under other numbers is
// unlinked.
func (r *replica) finish(m moment) error {
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
