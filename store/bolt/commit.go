package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// pending is a batch that waits for its commit. One transaction commits all pending batches, of all
// sessions: a commit costs two syncs, however much it holds.
type pending struct {
	name      string
	batch     backend.Batch
	hashes    []idHash // of all ids of the batch
	malformed error
	snapshot  *backend.Snapshot // if set, it is to be stored, and the batch says only the creation
	size      int
	err       error
	session   session // that the batch has been put to, with its new head
}

// Limits of a transaction: batches, and bytes of records and values.
const (
	maxGroup      = 4096
	maxGroupBytes = 32 << 20
)

// A store that writes at all commits within this time; one that does not has no append
// that a snapshot's commit could delay.
const snapshotPatience = 10 * time.Millisecond

var fitting = groupcommit.Fit(maxGroup, maxGroupBytes, func(p *pending) int { return p.size })

// Append implements [backend.Backend].
func (b *Backend) Append(ctx context.Context, name string, batch backend.Batch) error {
	p := &pending{name: name, batch: batch, malformed: wellFormed(name, batch), hashes: hashIDs(batch.Records)}
	for _, r := range batch.Records {
		p.size += len(r.Data)
	}
	for _, v := range batch.Shared {
		p.size += len(v.Data)
	}
	for {
		if err := b.queue.Do(ctx, b.writer, p, fitting, b.commitGroup); err != nil {
			return err
		}
		if !errors.Is(p.err, errIDsNotCached) {
			return p.err
		}
		if err := b.cacheIDs(ctx, p); err != nil {
			return err
		}
	}
}

// errIDsNotCached is returned if the id cache does not hold the ids of the session.
var errIDsNotCached = errors.New("ids not read")

// cacheIDs reads the ids of the session into the cache, without the writer lock.
func (b *Backend) cacheIDs(ctx context.Context, p *pending) error {
	name := p.name
	if p.batch.Create {
		name = p.batch.Staged
	}
	return b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, p.batch.Creation)
		if err == nil {
			_, err = b.ids.lookup(tx, s, nil)
		}
		return err
	})
}

// PutSnapshot implements [backend.Backend]. The snapshot shares the next commit; if there is none
// within snapshotPatience, it gets a commit of its own.
func (b *Backend) PutSnapshot(ctx context.Context, name, creation string, s backend.Snapshot) error {
	p := &pending{name: name, batch: backend.Batch{Creation: creation}, snapshot: &s, size: len(s.Data)}
	if err := b.queue.DoLater(ctx, snapshotPatience, b.writer, p, fitting, b.commitGroup); err != nil {
		return err
	}
	return p.err
}

// commitGroup commits batches in one transaction. A refused batch does not stop the others. The caller
// holds the writer lock.
func (b *Backend) commitGroup(group []*pending) {
	var db *bbolt.DB
	err := b.write(func(tx *bbolt.Tx) error {
		db = tx.DB()
		paths := b.handle.paths(tx)
		none, grown := errNothing, map[uint64]uint64{}
		for _, p := range group {
			if p.err = b.admit(tx, paths, p, grown); p.err != nil {
				continue // refused, with nothing written
			}
			if err := b.put(tx, p); err != nil {
				return fmt.Errorf("session %q: %w", p.name, err)
			}
			none = nil
			grown[p.session.id()] += uint64(len(p.batch.Records))
		}
		return none
	})
	for _, p := range group {
		switch {
		case p.err != nil:
		case err != nil:
			p.err = err
		case p.snapshot == nil:
			b.ids.add(db, p.session.number, p.batch.Records, p.hashes)
		}
	}
}

// admit judges a batch, and writes nothing. It finds the session that the batch goes to, or makes the
// one that the batch creates, with the head of what is staged for it. grown says how many records sessions have got
// in the same transaction.
func (b *Backend) admit(tx *bbolt.Tx, paths *pathChecker, p *pending, grown map[uint64]uint64) (err error) {
	switch {
	case p.snapshot != nil:
		p.session, err = findCreated(tx, p.name, p.batch.Creation)
		if err == nil && (p.session.head == nil || p.session.head.edition != p.snapshot.Edition) {
			err = backend.ErrMoved
		}
	case p.batch.Create:
		p.session, err = b.admitNew(tx, p.name, p.batch)
	default:
		if p.session, err = findWhole(tx, p.name, p.batch.Creation); err == nil && (p.session.head.last != p.batch.After || p.session.head.token != p.batch.Seen) {
			err = backend.ErrMoved
		}
	}
	if err == nil {
		err = p.malformed
	}
	if err == nil && p.snapshot == nil {
		err = b.checkRoom(tx, p, grown)
	}
	if err == nil {
		err = b.checkPaths(tx, paths, p)
	}
	return err
}

func (b *Backend) admitNew(tx *bbolt.Tx, name string, batch backend.Batch) (session, error) {
	switch _, err := find(tx, name); {
	case err == nil:
		return session{}, backend.ErrExists
	case !errors.Is(err, backend.ErrNotFound): // there is something, and nothing is put over it
		return session{}, fmt.Errorf("%w: %w", backend.ErrExists, err)
	}
	if w := batch.While; w != nil {
		other, err := findCreated(tx, w.Session, w.Creation)
		switch {
		case errors.Is(err, backend.ErrNotFound):
			return session{}, backend.ErrMoved
		case err != nil:
			return session{}, err
		case other.head == nil || other.head.last != w.Last || other.head.token != w.Token:
			return session{}, backend.ErrMoved
		}
	}
	s := session{creation: batch.Creation, meta: batch.Meta, head: &head{}}
	if batch.Staged != "" {
		staged, err := findWhole(tx, batch.Staged, batch.Creation)
		if errors.Is(err, backend.ErrNotFound) || err == nil && staged.head.token != batch.Seen {
			err = backend.ErrMoved
		}
		if err != nil {
			return session{}, err
		}
		s.number, s.head = staged.number, staged.head
	}
	if s.head.last != batch.After {
		return session{}, backend.ErrMoved
	}
	if s.number == nil {
		var err error
		if s.number, err = nextNumber(tx); err != nil {
			return session{}, err
		}
		s.head.number = s.number
	}
	return s, nil
}

// checkRoom reports whether records can be put without anything being put over: the log ends where its head
// says, as a search finds it, nothing stands behind, and no id is known to be taken.
func (b *Backend) checkRoom(tx *bbolt.Tx, p *pending, grown map[uint64]uint64) error {
	s := p.session
	c := tx.Bucket(bucketRecords).Cursor()
	next, _ := c.Seek(s.key(s.head.last + 1))
	var last []byte
	if next == nil {
		last, _ = c.Last()
	} else {
		last, _ = c.Prev()
	}
	if bytes.HasPrefix(next, s.number) || s.seqOf(last) != s.head.last {
		return fmt.Errorf("%w: behind record %d, the last of session %q, stands key %x; before it key %x",
			backend.ErrDamaged, s.head.last, p.name, next, last)
	}
	if len(p.hashes) == 0 || p.batch.IDsFree {
		return nil
	}
	return b.ids.check(tx.DB(), s.number, s.head.last-grown[s.id()], p.hashes)
}

// errNothing ends a transaction that has nothing to write.
var errNothing = errors.New("nothing to write")

// wellFormed reports whether bbolt will take the batch.
func wellFormed(name string, batch backend.Batch) error {
	fits := func(what, name string, least int) error {
		if len(name) < least || len(name) > backend.MaxNameBytes {
			return fmt.Errorf("%s of %d bytes; %d to %d are allowed", what, len(name), least, backend.MaxNameBytes)
		}
		return nil
	}
	errs := []error{fits("a session name", name, 1), fits("a creation id", batch.Creation, 0)}
	for i, r := range batch.Records {
		if want := batch.After + uint64(i) + 1; r.Seq != want {
			errs = append(errs, fmt.Errorf("a record of the batch has seq %d, want %d", r.Seq, want))
		}
		for _, id := range r.IDs {
			errs = append(errs, fits("an id", id, 0))
		}
	}
	for _, v := range batch.Shared {
		errs = append(errs, fits("a shared name", v.Name, 1))
	}
	return errors.Join(errs...)
}

// checkPaths checks the pages that a write will copy; those of a session's rows before its first write.
func (b *Backend) checkPaths(tx *bbolt.Tx, paths *pathChecker, p *pending) error {
	type path struct{ bucket, key []byte }
	var all []path
	cached := b.ids.of(tx.DB(), p.session.number)
	switch name := []byte(p.name); {
	case p.snapshot != nil:
		all = append(all, path{bucketSnapshots, p.session.number})
	case p.batch.Create:
		all = append(all, path{bucketSessions, name})
		if p.batch.Staged != "" {
			all = append(all, path{bucketSessions, []byte(p.batch.Staged)}, path{bucketHeads, []byte(p.batch.Staged)})
		}
		fallthrough
	case !cached.sound:
		next := p.session.key(p.batch.After + 1)
		all = append(all, path{bucketHeads, name}, path{bucketRecords, next})
	}
	for _, v := range p.batch.Shared {
		all = append(all, path{bucketShared, []byte(v.Name)}, path{bucketSharedNames, []byte(v.Name)})
	}
	for _, w := range all {
		if err := paths.check(w.bucket, w.key); err != nil {
			return err
		}
	}
	cached.sound = cached.sound || p.snapshot == nil
	return nil
}

// put writes a batch that has been admitted.
func (b *Backend) put(tx *bbolt.Tx, p *pending) error {
	s := &p.session
	if p.snapshot != nil {
		return s.putSnapshot(tx, *p.snapshot)
	}
	if p.batch.Create {
		var err error
		if p.batch.Staged != "" { // which has its number
			name := []byte(p.batch.Staged)
			err = errors.Join(tx.Bucket(bucketSessions).Delete(name), tx.Bucket(bucketHeads).Delete(name))
		} else {
			err = takeNumber(tx)
		}
		if err == nil {
			err = putEntry(tx, p.name, *s)
		}
		if err != nil {
			return err
		}
	}
	if err := s.putRecords(tx, p.batch.Records, p.hashes); err != nil {
		return err
	}
	s.head.token = p.batch.Next
	if p.batch.Counts != nil {
		s.head.counts = p.batch.Counts
	}
	if err := putHead(tx, p.name, *s.head); err != nil {
		return err
	}
	return putShared(tx, p.batch.Shared)
}

// putSnapshot writes a snapshot, unless one of a later record is there.
func (s session) putSnapshot(tx *bbolt.Tx, kept backend.Snapshot) error {
	bucket := tx.Bucket(bucketSnapshots)
	if value, ok := unseal(kindSnapshot, s.number, bucket.Get(s.number)); ok {
		if there, ok := decodeSnapshot(value); ok && there.Seq > kept.Seq {
			return nil
		}
	}
	return bucket.Put(s.number, seal(kindSnapshot, s.number, encodeSnapshot(kept)))
}

// putRecords writes records behind the session's last, and counts them in its head. hashes are those of
// their ids in turn.
func (s session) putRecords(tx *bbolt.Tx, added []backend.Record, hashes []idHash) error {
	records := tx.Bucket(bucketRecords)
	records.FillPercent = fillPercent
	for _, r := range added {
		key := s.key(r.Seq)
		if err := records.Put(key, sealRecord(key, r.Data, hashes[:len(r.IDs)])); err != nil {
			return err
		}
		s.head.last, s.head.chain = r.Seq, s.head.chain.Add(r.Sum)
		hashes = hashes[len(r.IDs):]
	}
	return nil
}
