package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/line"
)

// pending is a batch that waits for its commit. All that wait go into one transaction,
// whichever sessions they are of: a commit costs two syncs, however much it holds.
type pending struct {
	name     string
	batch    backend.Batch
	staging  *staging
	snapshot []byte // if set, it is to be stored, and the batch says only the creation
	edition  uint64 // of a snapshot
	size     int
	err      error
}

// So many batches, or so many bytes, make a transaction that is large enough.
const (
	maxGroup      = 4096
	maxGroupBytes = 32 << 20
)

// A store that writes at all commits within this time; one that does not has no append
// that a snapshot's commit could delay.
const snapshotPatience = 10 * time.Millisecond

var fitting = line.Fit(maxGroup, maxGroupBytes, func(p *pending) int { return p.size })

// Append implements [backend.Backend].
func (b *Backend) Append(ctx context.Context, name string, batch backend.Batch) error {
	if batch.Create && batch.After > 0 {
		return b.appendStaged(ctx, name, batch)
	}
	return b.append(ctx, name, batch)
}

func (b *Backend) append(ctx context.Context, name string, batch backend.Batch) error {
	p := &pending{name: name, batch: batch, staging: &b.staged}
	for _, r := range batch.Records {
		p.size += len(r.Data)
	}
	for _, v := range batch.Shared {
		p.size += len(v.Data)
	}
	if err := b.line.Do(ctx, b.writer, p, fitting, b.commitGroup); err != nil {
		return err
	}
	return p.err
}

// PutSnapshot implements [backend.Backend]. The snapshot shares the commit of whatever is
// written at the time. Only if nothing is, it takes a commit of its own.
func (b *Backend) PutSnapshot(ctx context.Context, name, creation string, s backend.Snapshot) error {
	p := &pending{name: name, batch: backend.Batch{Creation: creation}, snapshot: append([]byte{}, s.Data...), edition: s.Edition, size: len(s.Data)}
	if err := b.line.DoLater(ctx, snapshotPatience, b.writer, p, fitting, b.commitGroup); err != nil {
		return err
	}
	return p.err
}

// commitGroup commits batches together. One that is refused does not keep the others
// from being written. The caller holds the writer's place.
func (b *Backend) commitGroup(group []*pending) {
	if slices.ContainsFunc(group, func(p *pending) bool { return len(p.batch.Shared) > 0 }) {
		defer b.values.change()()
	}
	err := b.write(func(tx *txn) error {
		for _, p := range group {
			s, err := b.admitPending(tx, p)
			if err == nil {
				err = b.checkWays(tx, p, s)
			}
			if p.err = err; err != nil {
				continue // refused, with nothing written
			}
			if err := b.put(tx, p, s); err != nil {
				return fmt.Errorf("session %q: %w", p.name, err)
			}
		}
		return nil
	})
	if err == nil {
		return
	}
	for _, p := range group {
		if p.err == nil {
			p.err = err
		}
	}
}

func (b *Backend) admitPending(tx *txn, p *pending) (session, error) {
	if p.snapshot != nil {
		s, err := findCreated(tx, p.name, p.batch.Creation)
		if err == nil && b.editions.get(s.number, tx.ID()) != p.edition {
			err = backend.ErrMoved
		}
		return s, err
	}
	return b.admit(tx, p.name, p.batch)
}

// put writes what has been admitted.
func (b *Backend) put(tx *txn, p *pending, s session) error {
	switch {
	case p.snapshot != nil:
		return tx.Bucket(bucketSnapshots).Put(s.number, p.snapshot)
	case p.batch.Create:
		if p.batch.After == 0 { // it had no rows before these
			b.counts.put(tx.DB(), s.number)
		}
		return s.create(tx, p.name, p.batch)
	}
	return s.put(tx, p.name, *s.head, p.batch)
}

// checkWays looks over the pages that a write will write anew, a session's when it is
// first written to.
func (b *Backend) checkWays(tx *txn, p *pending, s session) error {
	type way struct{ bucket, key []byte }
	var ways []way
	known := b.written.has(tx.DB(), s.number)
	switch name := []byte(p.name); {
	case p.snapshot != nil:
		ways = append(ways, way{bucketSnapshots, s.number})
	case p.batch.Create:
		ways = append(ways, way{bucketSessions, name}, way{bucketMeta, keyNumbers})
		fallthrough
	case !known:
		ways = append(ways, way{bucketHeads, name}, way{bucketRecords, s.key(number(p.batch.After + 1))}, way{bucketIDs, s.number})
	}
	for _, v := range p.batch.Shared {
		ways = append(ways, way{bucketShared, []byte(v.Name)}, way{bucketSharedNames, []byte(v.Name)})
	}
	if len(ways) == 0 {
		return nil
	}
	paths := pathsOf(tx)
	for _, w := range ways {
		if err := paths.sound(w.bucket, w.key); err != nil {
			return err
		}
	}
	if p.snapshot == nil {
		b.written.put(tx.DB(), s.number)
	}
	return nil
}

// admit judges a batch and writes nothing. It returns the session that the batch goes to,
// with the number that it will have, and the head of what is staged for it, if it has
// still to be created.
func (b *Backend) admit(tx *txn, name string, batch backend.Batch) (s session, err error) {
	if batch.Create {
		s, err = b.admitNew(tx, name, batch)
	} else {
		s, err = findCreated(tx, name, batch.Creation)
		switch {
		case err != nil:
		case s.head == nil:
			err = fmt.Errorf("%w: the head of session %q", backend.ErrDamaged, name)
		case s.head.last != batch.After:
			err = backend.ErrMoved
		case b.harmed: // since the ids were looked up, it may be; whoever looks them up again learns what of
			err = b.checkIndex(tx, name, s)
		}
	}
	if err == nil {
		err = wellFormed(name, batch)
	}
	if err == nil {
		s.rows = s.idRows(batch.Records)
		err = s.room(tx, name, batch)
	}
	return s, err
}

func (b *Backend) admitNew(tx *txn, name string, batch backend.Batch) (session, error) {
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
		case other.head == nil || other.head.last != w.Last:
			return session{}, backend.ErrMoved
		}
	}
	s := session{creation: batch.Creation, meta: batch.Meta, head: &head{}}
	if st := b.staged.get(batch.Creation); st != nil {
		s.number, *s.head = st.number, st.head()
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

// room reports whether the batch's records and ids can be put without anything being put
// over: the log ends where it should, as a search finds it, and nothing stands behind.
func (s session) room(tx *txn, name string, batch backend.Batch) error {
	c := tx.Bucket(bucketRecords).Cursor()
	next, _ := c.Seek(s.key(number(batch.After + 1)))
	var last []byte
	if next == nil {
		last, _ = c.Last()
	} else {
		last, _ = c.Prev()
	}
	if bytes.HasPrefix(next, s.number) || s.seqOf(last) != batch.After {
		return fmt.Errorf("%w: behind record %d, the last of session %q, stands key %x; before it key %x",
			backend.ErrDamaged, batch.After, name, next, last)
	}
	for _, r := range batch.Records[min(1, len(batch.Records)):] { // the first one is next
		if k, _ := c.Seek(s.key(number(r.Seq))); s.seqOf(k) == r.Seq {
			return fmt.Errorf("%w: record %d is behind the end of session %q", backend.ErrDamaged, r.Seq, name)
		}
	}
	ids := tx.Bucket(bucketIDs)
	for _, row := range s.rows {
		if v := ids.Get(row.key); v != nil {
			return fmt.Errorf("%w: session %q has an id of record %d in record %x already", backend.ErrDamaged, name, row.seq, v)
		}
	}
	return nil
}

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

// create writes a batch that creates its session and has been admitted.
func (s session) create(tx *txn, name string, batch backend.Batch) error {
	var err error
	if batch.After > 0 { // its number was given out when it was staged
		err = tx.Bucket(bucketUnlinked).Delete(s.number)
	} else {
		err = takeNumber(tx)
	}
	if err != nil {
		return err
	}
	if err := tx.Bucket(bucketSessions).Put([]byte(name), encodeSession(name, s)); err != nil {
		return err
	}
	return s.put(tx, name, *s.head, batch)
}

// put writes a batch that has been admitted to a session with the given head.
func (s session) put(tx *txn, name string, h head, batch backend.Batch) error {
	records, ids := tx.Bucket(bucketRecords), tx.Bucket(bucketIDs)
	records.inOrder()
	for _, r := range batch.Records {
		if err := records.Put(s.key(number(r.Seq)), r.Data); err != nil {
			return err
		}
		h.last, h.chain = r.Seq, h.chain.Add(r.Sum)
	}
	for i, row := range s.rows {
		if i+1 < len(s.rows) && bytes.Equal(row.key, s.rows[i+1].key) {
			continue // an id that the batch has twice is where it is last
		}
		at := number(row.seq)
		if err := ids.Put(row.key, at); err != nil {
			return err
		}
		h.index = h.index.add(row.key, at)
	}
	if batch.Create || len(batch.Records) > 0 {
		if err := tx.Bucket(bucketHeads).Put([]byte(name), encodeHead(name, h)); err != nil {
			return err
		}
	}
	return putShared(tx, batch.Shared)
}
