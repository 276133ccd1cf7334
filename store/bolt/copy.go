package bolt

import (
	"bytes"
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"
)

// pauseRemovals sets removalsPaused until resume is called. Until then, rows of sessions are neither changed nor
// removed. If another call has set removalsPaused, pauseRemovals waits until that call resumes removals.
func (b *Backend) pauseRemovals(ctx context.Context) (resume func(), err error) {
	end, err := acquire(ctx, b.copyLock)
	if err != nil {
		return nil, err
	}
	// A commit in progress may be removing rows.
	unlock, err := acquire(ctx, b.writerLock)
	if err != nil {
		end()
		return nil, err
	}
	b.removalsPaused.Store(true)
	unlock()
	return func() {
		b.removalsPaused.Store(false)
		b.sweep(context.Background())
		end()
	}, nil
}

// replica is a new file to which rows are copied.
type replica struct {
	db     *bbolt.DB
	tx     *bbolt.Tx // the open transaction, or nil
	bytes  int       // bytes written by tx
	sum    func(record []byte) uint32
	vacuum bool // whether snapshots are copied too
}

// replicaBytes is the number of bytes written to a replica between two syncs. The limit protects other writers,
// because a sync of the backend's file may have to wait until the data written to all other files is on disk.
const replicaBytes = 8 << 20

// newReplicaReader creates an empty replica of the backend in an empty file. The caller has paused removals.
func (b *Backend) newReplicaReader(path string, sum func([]byte) uint32, vacuum bool) (*sessionReader, error) {
	db, err := newDatabase(path, false)
	if err != nil {
		return nil, err
	}
	return &sessionReader{backend: b, found: &findings{}, progress: map[string]*readProgress{}, replica: &replica{db: db, sum: sum, vacuum: vacuum}}, nil
}

// copyNew copies the rows that were not copied by an earlier call.
func (r *sessionReader) copyNew(ctx context.Context) (m directory, err error) {
	owned := rowBuckets
	switch {
	// An earlier call of copyNew has made the checks.
	case len(r.progress) > 0:
		owned = nil
	case !r.vacuum:
		owned = [][]byte{bucketRecords}
	}
	if m, err = r.backend.readDirectory(ctx, r.found, owned...); err == nil {
		err = r.found.err()
	}
	if err == nil {
		err = r.readNew(ctx, m)
	}
	return m, err
}

// begin begins a transaction, unless one is open.
func (r *replica) begin() (err error) {
	if r.tx == nil {
		r.tx, err = r.db.Begin(true)
	}
	return err
}

func (r *replica) put(bucket, k, row []byte) error {
	if err := r.begin(); err != nil {
		return err
	}
	rows := r.tx.Bucket(bucket)
	rows.FillPercent = fillPercent
	r.bytes += len(k) + len(row)
	return rows.Put(k, bytes.Clone(row))
}

// putRuns writes the id runs of a session for the records copied so far.
func (r *replica) putRuns(l session, x *readProgress) error {
	if lastInRuns(x.runsUpTo) == lastInRuns(x.next-1) {
		return nil
	}
	if err := r.begin(); err != nil {
		return err
	}
	g, err := l.planRunGrowth(r.tx, x.runsUpTo, x.next-1, x.next-1)
	if err == nil {
		err = g.put(r.tx, l)
	}
	x.runsUpTo = x.next - 1
	r.bytes += len(g.entries) * idEntryBytes
	return errors.Join(err, r.commitIfFull())
}

func (r *replica) commitIfFull() error {
	if r.bytes < replicaBytes {
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

// finish writes the rows of a directory. If rows were copied under a number that no longer has a session, finish
// adds the number to the unlinked numbers.
func (r *sessionReader) finish(m directory) (err error) {
	put := func(bucket, k, row []byte) {
		if err == nil {
			err = errors.Join(r.put(bucket, k, row), r.commitIfFull())
		}
	}
	for i, pair := range nameBuckets {
		for _, n := range m.names[i] {
			put(pair[0], []byte(n.name), n.rows[0])
			put(pair[1], []byte(n.name), n.rows[1])
		}
	}
	for _, scope := range m.scopes {
		put(bucketScopes, scope[0], scope[1])
	}
	for _, f := range m.families {
		put(bucketFamilies, f[0], f[1])
	}
	for _, l := range m.sessions {
		delete(r.progress, string(l.number))
		put(bucketRecords, l.key(0), seal(kindLabel, l.key(0), l.label()))
	}
	for n := range r.progress {
		put(bucketUnlinked, []byte(n), seal(kindUnlinked, []byte(n), nil))
	}
	if err == nil {
		err = r.commit()
	}
	if err != nil {
		return err
	}
	return r.db.Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(bucketSessions).SetSequence(m.lastNumber), setVersion(tx, m.lastNumber))
	})
}

func (r *replica) close() error {
	var err error
	if r.tx != nil {
		err = r.tx.Rollback()
	}
	return errors.Join(err, r.db.Sync(), r.db.Close())
}
