package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Replace implements [backend.Backend]. It waits for the end of a copy, which reads the rows of one moment in many
// transactions.
func (b *Backend) Replace(ctx context.Context, name string, r backend.Replacement) error {
	unlock, err := acquire(ctx, b.copying)
	if err != nil {
		return err
	}
	defer unlock()
	p := &pending{name: name, batch: backend.Batch{Creation: r.Creation, ExpectedLast: r.ExpectedLast, ExpectedToken: r.ExpectedToken, Records: r.Appended, RequireFreeIDs: true}, hashes: hashIDs(r.Appended)}
	if err := wellFormed(name, p.batch); err != nil {
		return err
	}
	var db *bbolt.DB
	err = b.update(ctx, func(tx *bbolt.Tx) (err error) {
		db = tx.DB()
		if p.session, err = findUnmoved(tx, name, r.Creation, r.ExpectedLast, r.ExpectedToken); err != nil {
			return err
		}
		s, paths := p.session, b.handle.paths(tx)
		for _, x := range r.Records {
			err = errors.Join(err, paths.check(s.key(x.Seq), bucketRecords))
		}
		err = errors.Join(err, paths.check(s.key(r.ExpectedLast+1), bucketRecords), paths.check(s.key(0), bucketRecords),
			paths.check(s.number, bucketSnapshots), paths.check([]byte(name), bucketHeads, bucketSessions))
		if err == nil && len(r.Appended) > 0 {
			// An index that cannot be read keeps nothing from being replaced.
			if err = b.checkRoom(tx, p); errors.Is(err, backend.ErrIndex) {
				err = nil
			}
		}
		if err != nil {
			return err
		}
		return s.replaceRecords(tx, r, p.hashes)
	})
	if err == nil {
		b.ids.add(db, p.session.number, r.Appended, p.hashes)
	}
	return err
}

func (s session) replaceRecords(tx *bbolt.Tx, r backend.Replacement, hashes []idHash) error {
	records := tx.Bucket(bucketRecords)
	ids := make([][]idHash, len(r.Records))
	for i, x := range r.Records {
		key := s.key(x.Seq)
		row := records.Get(key) // as a search finds it, since the way to it was checked
		if old, ok := unseal(kindRecord, key, row); x.Seq > r.ExpectedLast || !ok || !bytes.Equal(old, x.Old) {
			return backend.ErrMoved
		}
		var ok bool
		if ids[i], ok = recordIDs(key, row); !ok {
			return fmt.Errorf("%w: the ids of record %d of session %q", backend.ErrDamaged, x.Seq, s.name)
		}
	}
	for i, x := range r.Records {
		if err := records.Put(s.key(x.Seq), sealRecord(s.key(x.Seq), x.Data, ids[i])); err != nil {
			return err
		}
	}
	s.head.chain, s.head.token, s.head.edition = r.After(s.head.chain), r.Next, s.head.edition+1
	if r.Counts != nil {
		s.head.counts = r.Counts
	}
	if err := s.putRecords(tx, r.Appended, hashes); err != nil {
		return err
	}
	if err := s.putHead(tx); err != nil {
		return err
	}
	if r.Meta != nil {
		s.meta = r.Meta
		if err := s.putEntry(tx); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketSnapshots).Delete(s.number)
}
