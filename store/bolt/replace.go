package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Replace implements [backend.Backend]. Whoever copies the file reads bit by bit what it held
// at one moment, and so is waited for.
func (b *Backend) Replace(ctx context.Context, name string, r backend.Replacement) error {
	select {
	case b.copying <- struct{}{}:
		defer func() { <-b.copying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p := &pending{name: name, batch: backend.Batch{Creation: r.Creation, After: r.Last, Seen: r.Seen, Records: r.Appended}, hashes: hashIDs(r.Appended)}
	if err := wellFormed(name, p.batch); err != nil {
		return err
	}
	// The paths are checked without the writer lock: pages that other writers copy are valid.
	err := b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, r.Creation)
		if err != nil {
			return err
		}
		paths := b.handle.paths(tx)
		for _, x := range r.Records {
			err = errors.Join(err, paths.check(bucketRecords, s.key(x.Seq)))
		}
		if len(p.hashes) > 0 {
			_, err := b.ids.lookup(tx, s, nil)
			p.batch.IDsFree = errors.Is(err, backend.ErrIndex) // which the caller knows
		}
		next := s.key(r.Last + 1)
		return errors.Join(err, paths.check(bucketRecords, next), paths.check(bucketRecords, s.key(0)), paths.check(bucketHeads, []byte(name)), paths.check(bucketSnapshots, s.number), paths.check(bucketSessions, []byte(name)))
	})
	if err != nil {
		return err
	}
	var db *bbolt.DB
	err = b.update(ctx, func(tx *bbolt.Tx) error {
		db = tx.DB()
		var err error
		p.session, err = findWhole(tx, name, r.Creation)
		if err == nil && (p.session.head.last != r.Last || p.session.head.token != r.Seen) {
			err = backend.ErrMoved
		}
		if err == nil && len(r.Appended) > 0 {
			err = b.checkRoom(tx, p, nil)
		}
		if errors.Is(err, errIDsNotCached) { // the ids were forgotten since
			err = backend.ErrMoved
		}
		if err != nil {
			return err
		}
		return replaceRecords(tx, name, p.session, r, p.hashes)
	})
	if err == nil {
		b.ids.add(db, p.session.number, r.Appended, p.hashes)
	}
	return err
}

func replaceRecords(tx *bbolt.Tx, name string, s session, r backend.Replacement, hashes []idHash) error {
	records := tx.Bucket(bucketRecords)
	ids := make([][]idHash, len(r.Records))
	for i, x := range r.Records {
		key := s.key(x.Seq)
		row := records.Get(key) // as a search finds it, since the way to it was checked
		if old, ok := unseal(kindRecord, key, row); x.Seq > r.Last || !ok || !bytes.Equal(old, x.Old) {
			return backend.ErrMoved
		}
		var ok bool
		if ids[i], ok = recordIDs(key, row); !ok {
			return fmt.Errorf("%w: the ids of record %d of session %q", backend.ErrDamaged, x.Seq, name)
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
	if err := putHead(tx, name, *s.head); err != nil {
		return err
	}
	if r.Meta != nil {
		s.meta = r.Meta
		if err := putEntry(tx, name, s); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketSnapshots).Delete(s.number)
}
