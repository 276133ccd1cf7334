package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// pending is a batch that waits to be committed. One transaction commits pending batches of all sessions, because a
// commit costs two syncs, whatever its size.
type pending struct {
	name            string
	batch           backend.Batch
	hashes          []idHash          // hashes of all ids of the batch, in order
	snapshot        *backend.Snapshot // if not nil, the snapshot to store, and the batch has only the creation id
	makeReplacement func(backend.Head) (backend.Replacement, error)
	replace         *backend.Replacement // if makeReplacement is not nil, its result, and the batch has the records appended by that result
	ids             [][]idHash           // id hashes of the records to replace
	size            int
	err             error
	session         session // the batch's session, with its new head
	runs            *runGrowth
}

// Limits of a transaction: the number of batches, and the bytes of records and values.
const (
	maxGroup      = 4096
	maxGroupBytes = 32 << 20
)

var fitGroup = groupcommit.LimitGroup(maxGroup, maxGroupBytes, func(p *pending) int { return p.size })

// Append implements [backend.Backend].
func (b *Backend) Append(ctx context.Context, name string, batch backend.Batch) error {
	if err := batch.Validate(name); err != nil {
		return err
	}
	return b.submit(ctx, &pending{name: name, batch: batch})
}

// PutSnapshot implements [backend.Backend].
func (b *Backend) PutSnapshot(ctx context.Context, name, creation string, s backend.Snapshot) error {
	return b.submit(ctx, &pending{name: name, batch: backend.Batch{Creation: creation}, snapshot: &s, size: len(s.Data)})
}

// submit waits until the batch is committed or refused.
func (b *Backend) submit(ctx context.Context, p *pending) error {
	p.hashes = hashIDs(p.batch.Records)
	for _, r := range p.batch.Records {
		p.size += len(r.Data)
	}
	for _, v := range p.batch.Shared {
		p.size += len(v.Data)
	}
	if err := b.queue.Do(ctx, b.writerLock, p, fitGroup, b.commitGroup); err != nil {
		return err
	}
	return p.err
}

// commitGroup commits batches in one transaction. Refused batches are skipped. The caller has the writer lock.
func (b *Backend) commitGroup(group []*pending) {
	var db *bbolt.DB
	done := false
	defer func() {
		for _, p := range group {
			if !done {
				p.err = errAbandoned
			}
		}
	}()
	err := b.write(func(tx *bbolt.Tx) error {
		db = tx.DB()
		paths := b.handle.newPathChecker(tx)
		result := errNoChanges
		for _, p := range group {
			if p.err = b.validate(tx, paths, p); p.err != nil {
				continue // refused; nothing was written for this batch
			}
			if err := b.put(tx, p); err != nil {
				return fmt.Errorf("session %q: %w", displayName(p.name), err)
			}
			result = nil
		}
		return result
	})
	if err != nil && !errors.Is(err, errNoChanges) {
		b.ids.reset()
	}
	for _, p := range group {
		switch {
		case p.err != nil:
		case err != nil:
			p.err = err
		case p.snapshot == nil:
			b.ids.add(db, p.session.number, p.batch.Records, p.hashes)
		}
	}
	done = true
}

// errAbandoned is the error of a batch whose transaction ended because a call in it panicked.
var errAbandoned = &backend.UnknownError{Cause: errors.New("abandoned: a call that shared the commit panicked")}

// validate validates a batch without writing. It sets p.session to the batch's session. For a batch that creates a
// session, p.session is a new session, or the staged session under its new name.
func (b *Backend) validate(tx *bbolt.Tx, paths *pathChecker, p *pending) (err error) {
	switch {
	case p.snapshot != nil:
		p.session, err = findCreated(tx, p.name, p.batch.Creation)
		if err == nil && p.session.head.Edition != p.snapshot.Edition {
			err = backend.ErrMoved
		}
	case p.makeReplacement != nil:
		err = p.planReplacement(tx)
	case p.batch.Create:
		p.session, err = b.validateNew(tx, p.name, p.batch)
	default:
		p.session, err = findUnmoved(tx, p.name, p.batch.Creation, p.batch.ExpectedLast, p.batch.ExpectedToken)
	}
	if err == nil {
		err = b.checkPaths(tx, paths, p)
	}
	if err == nil && p.snapshot == nil {
		err = b.checkLogEnd(tx, p)
	}
	if err == nil && len(p.batch.Records) > 0 {
		last := p.batch.ExpectedLast
		if p.runs, err = p.session.planRunGrowth(tx, last, last+uint64(len(p.batch.Records)), last); err == nil {
			err = p.runs.checkPaths(p.session, paths)
		}
	}
	if err == nil && p.replace != nil {
		p.ids, err = p.session.validateReplacement(tx, *p.replace)
	}
	return err
}

func (b *Backend) validateNew(tx *bbolt.Tx, name string, batch backend.Batch) (session, error) {
	switch _, err := find(tx, name); {
	case err == nil:
		return session{}, backend.ErrExists
	case !errors.Is(err, backend.ErrNotFound): // the name belongs to a damaged session
		return session{}, fmt.Errorf("%w: %w", backend.ErrExists, err)
	}
	var s session
	var err error
	if w := batch.ExpectedSource; w != nil {
		var source session
		if source, err = findCreated(tx, w.Session, w.Creation); err == nil && source.head.Edition != w.Edition {
			err = backend.ErrMoved
		}
	}
	switch {
	case err != nil:
	case batch.RenameFrom != "":
		s, err = findUnmoved(tx, batch.RenameFrom, batch.Creation, batch.ExpectedLast, batch.ExpectedToken)
		s.name, s.meta = name, batch.Meta
	case batch.ExpectedLast != 0:
		err = backend.ErrMoved
	default:
		s = session{name: name, creation: batch.Creation, meta: batch.Meta}
		if s.number, err = nextNumber(tx); err == nil {
			s.head = &head{headFields: headFields{Number: s.id()}}
		}
	}
	if errors.Is(err, backend.ErrNotFound) {
		err = backend.ErrMoved
	}
	return s, err
}

// checkLogEnd returns an error if adding the records could overwrite a row. The log must end with the record that
// the head names, and no row of the session may follow that record. If the batch requires free ids, checkLogEnd also
// returns an error if an id is taken.
func (b *Backend) checkLogEnd(tx *bbolt.Tx, p *pending) error {
	s := p.session
	last, next := adjacentKeys(tx.Bucket(bucketRecords).Cursor(), s.key(s.head.Last+1))
	if bytes.HasPrefix(next, s.number) || s.seqOf(last) != s.head.Last {
		return fmt.Errorf("%w: session %q should end with record %d, but its last key is %x, followed by key %x",
			backend.ErrDamaged, displayName(p.name), s.head.Last, last, next)
	}
	if len(p.hashes) == 0 || !p.batch.RequireFreeIDs {
		return nil
	}
	seqs, err := b.ids.lookup(tx, s, p.hashes)
	switch {
	case err == nil && slices.Max(seqs) > 0:
		return backend.ErrTaken
	// Damage of the id index must not prevent an erasure.
	case p.replace != nil && errors.Is(err, backend.ErrIndex):
		return nil
	}
	return err
}

// checkPaths checks the pages that a write will copy. The pages for a session's records and head are checked only
// before the session's first write through this handle.
func (b *Backend) checkPaths(tx *bbolt.Tx, paths *pathChecker, p *pending) (err error) {
	if p.snapshot != nil {
		return paths.check(p.session.number, bucketSnapshots)
	}
	if p.replace != nil {
		for _, x := range p.replace.Records {
			err = errors.Join(err, paths.check(p.session.key(x.Seq), bucketRecords))
		}
		err = errors.Join(err, paths.check(p.session.key(0), bucketRecords), paths.check(p.session.number, bucketSnapshots),
			paths.check([]byte(p.name), bucketHeads, bucketSessions))
	}
	cached, name := b.ids.session(tx.DB(), p.session.number), []byte(p.name)
	if p.batch.Create {
		err = paths.check(name, bucketSessions)
		if p.batch.RenameFrom != "" {
			err = errors.Join(err, paths.check([]byte(p.batch.RenameFrom), bucketSessions, bucketHeads))
		}
		if p.batch.Family != "" {
			err = errors.Join(err, p.session.checkFamily(paths, hashID(p.batch.Family)))
		}
	}
	if p.batch.Create || !cached.pathsChecked {
		err = errors.Join(err, paths.check(name, bucketHeads), paths.check(p.session.key(p.batch.ExpectedLast+1), bucketRecords))
	}
	for _, v := range p.batch.Shared {
		err = errors.Join(err, checkSharedPaths(paths, v.Name))
	}
	cached.pathsChecked = cached.pathsChecked || err == nil
	return err
}

func (b *Backend) put(tx *bbolt.Tx, p *pending) error {
	s := &p.session
	if p.snapshot != nil {
		return s.putSnapshot(tx, *p.snapshot)
	}
	if p.batch.Create {
		var err error
		if p.batch.RenameFrom != "" { // the staged session already has a number
			name := []byte(p.batch.RenameFrom)
			err = errors.Join(tx.Bucket(bucketSessions).Delete(name), tx.Bucket(bucketHeads).Delete(name))
		} else {
			err = assignNumber(tx)
		}
		if err == nil {
			err = errors.Join(s.putEntry(tx), s.putFamily(tx, p.batch))
		}
		if err != nil {
			return err
		}
	}
	if p.replace != nil {
		if err := s.replaceRecords(tx, *p.replace, p.ids); err != nil {
			return err
		}
	}
	if err := s.putRecords(tx, p.batch.Records, p.hashes); err != nil {
		return err
	}
	if p.runs != nil {
		hashes := p.hashes
		for _, r := range p.batch.Records {
			p.runs.add(r.Seq, hashes[:len(r.IDs)])
			hashes = hashes[len(r.IDs):]
		}
		if err := p.runs.put(tx, *s); err != nil {
			return err
		}
	}
	s.head.Token = p.batch.Next
	if p.batch.Counts != nil {
		s.head.counts = p.batch.Counts
	}
	if err := s.putHead(tx); err != nil {
		return err
	}
	return putShared(tx, p.batch.Shared)
}

// putSnapshot writes a snapshot, unless the stored snapshot has a higher seq.
func (s session) putSnapshot(tx *bbolt.Tx, snapshot backend.Snapshot) error {
	bucket := tx.Bucket(bucketSnapshots)
	if value, ok := unseal(kindSnapshot, s.number, bucket.Get(s.number)); ok {
		if stored, ok := decodeSnapshot(value); ok && stored.Seq > snapshot.Seq {
			return nil
		}
	}
	return bucket.Put(s.number, seal(kindSnapshot, s.number, encodeSnapshot(snapshot)))
}

// putRecords writes records after the session's last record and updates the head. The argument hashes contains the
// hashes of all ids, in the order of the records.
func (s session) putRecords(tx *bbolt.Tx, added []backend.Record, hashes []idHash) error {
	records := tx.Bucket(bucketRecords)
	records.FillPercent = fillPercent
	for _, r := range added {
		key := s.key(r.Seq)
		if err := records.Put(key, sealRecord(key, r.Data, hashes[:len(r.IDs)])); err != nil {
			return err
		}
		s.head.Last, s.head.Chain = r.Seq, s.head.Chain.Add(r.Sum)
		hashes = hashes[len(r.IDs):]
	}
	return nil
}
