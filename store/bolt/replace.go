package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Replace implements [backend.Backend]. Replace waits until a running Check, Copy or Vacuum ends, because these calls
// read rows as of one moment in many transactions.
func (b *Backend) Replace(ctx context.Context, name, creation string, make func(backend.Head) (backend.Replacement, error)) error {
	unlock, err := acquire(ctx, b.copyLock)
	if err != nil {
		return err
	}
	defer unlock()
	p := &pending{name: name, batch: backend.Batch{Creation: creation}, makeReplacement: make}
	if err := p.batch.Validate(name); err != nil {
		return err
	}
	return b.submit(ctx, p)
}

// planReplacement calls p.makeReplacement with the current head, and sets p.replace and p.batch to the result.
func (p *pending) planReplacement(tx *bbolt.Tx) (err error) {
	if p.session, err = findCreated(tx, p.name, p.batch.Creation); err != nil {
		return err
	}
	head, err := headOf(tx, p.session)
	if head.Meta = nil; err != nil {
		return err
	}
	r, err := p.makeReplacement(head)
	if err != nil {
		return err
	}
	p.replace, p.batch = &r, r.Batch(p.batch.Creation, head)
	p.hashes = hashIDs(r.Appended)
	if r.Meta != nil {
		if err := p.session.readMeta(tx); err != nil {
			return err
		}
	}
	return p.batch.Validate(p.name)
}

// validateReplacement validates a replacement and returns the id hashes of each replaced record.
func (s session) validateReplacement(tx *bbolt.Tx, r backend.Replacement) (ids [][]idHash, err error) {
	for _, x := range r.Records {
		key := s.key(x.Seq)
		row := tx.Bucket(bucketRecords).Get(key) // the pages on this path were checked
		if old, ok := unseal(kindRecord, key, row); x.Seq > s.head.Last || !ok || !bytes.Equal(old, x.Old) {
			return nil, backend.ErrMoved
		}
		hashes, ok := recordIDs(key, row)
		if !ok {
			return nil, fmt.Errorf("%w: the ids of record %d of session %q are damaged", backend.ErrDamaged, x.Seq, displayName(s.name))
		}
		ids = append(ids, hashes)
	}
	if r.Meta != nil && !bytes.Equal(s.meta, r.OldMeta) {
		return nil, backend.ErrMoved
	}
	return ids, nil
}

// replaceRecords writes the replaced records and the meta record. It updates the head only in memory.
func (s *session) replaceRecords(tx *bbolt.Tx, r backend.Replacement, ids [][]idHash) (err error) {
	for i, x := range r.Records {
		err = errors.Join(err, tx.Bucket(bucketRecords).Put(s.key(x.Seq), sealRecord(s.key(x.Seq), x.Data, ids[i])))
	}
	s.head.Chain, s.head.Edition = r.ReplacedChain(backend.Head{Last: s.head.Last, Chain: s.head.Chain}), s.head.Edition+1
	if r.Meta != nil {
		s.meta = r.Meta
		err = errors.Join(err, s.putEntry(tx))
	}
	return errors.Join(err, tx.Bucket(bucketSnapshots).Delete(s.number))
}
