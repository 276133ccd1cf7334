package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	bbolt "go.etcd.io/bbolt"

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
func (b *Backend) PutSnapshot(ctx context.Context, name, creation string, data []byte) error {
	p := &pending{name: name, batch: backend.Batch{Creation: creation}, snapshot: append([]byte{}, data...), size: len(data)}
	if err := b.line.DoLater(ctx, snapshotPatience, b.writer, p, fitting, b.commitGroup); err != nil {
		return err
	}
	return p.err
}

// commitGroup commits batches together. One that is refused does not keep the others
// from being written. The caller holds the writer's place.
func (b *Backend) commitGroup(group []*pending) {
	err := b.write(func(tx *bbolt.Tx) error {
		for _, p := range group {
			s, err := p.admit(tx)
			if p.err = err; err != nil {
				continue // refused, with nothing written
			}
			if err := p.put(tx, s); err != nil {
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

func (p *pending) admit(tx *bbolt.Tx) (session, error) {
	if p.snapshot != nil {
		return findCreated(tx, p.name, p.batch.Creation)
	}
	return p.staging.admit(tx, p.name, p.batch)
}

func (p *pending) put(tx *bbolt.Tx, s session) error {
	if p.snapshot != nil {
		return tx.Bucket(bucketSnapshots).Put(s.number, p.snapshot)
	}
	return s.put(tx, p.name, p.batch)
}

// admit judges a batch and writes nothing. It returns the session that the batch goes to,
// without a number if it has still to be created and nothing is staged for it.
func (g *staging) admit(tx *bbolt.Tx, name string, batch backend.Batch) (s session, err error) {
	switch {
	case !batch.Create:
		if s, err = findCreated(tx, name, batch.Creation); err == nil && s.last(tx) != batch.After {
			err = backend.ErrMoved
		}
	case tx.Bucket(bucketSessions).Get([]byte(name)) != nil:
		err = backend.ErrExists
	default:
		s = session{creation: batch.Creation, meta: batch.Meta}
		last := uint64(0)
		if st := g.get(batch.Creation); st != nil {
			s.number, last = st.number, st.last
		}
		if last != batch.After {
			err = backend.ErrMoved
		}
	}
	if err == nil {
		err = wellFormed(name, batch)
	}
	return s, err
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

// put writes a batch that has been admitted.
func (s session) put(tx *bbolt.Tx, name string, batch backend.Batch) error {
	if batch.Create {
		var err error
		if s.number == nil {
			s.number, err = newNumber(tx)
		} else {
			err = tx.Bucket(bucketUnlinked).Delete(s.number)
		}
		if err != nil {
			return err
		}
		if err := tx.Bucket(bucketSessions).Put([]byte(name), encodeSession(name, s)); err != nil {
			return err
		}
	}
	records, ids := tx.Bucket(bucketRecords), tx.Bucket(bucketIDs)
	records.FillPercent = fillPercent
	type idAt struct {
		key []byte
		seq uint64
	}
	var taken []idAt
	for _, r := range batch.Records {
		if err := records.Put(s.key(number(r.Seq)), r.Data); err != nil {
			return err
		}
		for _, id := range r.IDs {
			taken = append(taken, idAt{s.idKey(id), r.Seq})
		}
	}
	// In their order: until the commit, bbolt keeps each leaf as one slice, however long it
	// grows, and moves all behind a key that it puts in.
	slices.SortFunc(taken, func(a, b idAt) int { return bytes.Compare(a.key, b.key) })
	for _, t := range taken {
		if err := ids.Put(t.key, number(t.seq)); err != nil {
			return err
		}
	}
	shared := tx.Bucket(bucketShared)
	for _, v := range batch.Shared {
		if err := shared.Put([]byte(v.Name), v.Data); err != nil {
			return err
		}
	}
	return nil
}

// newNumber returns a number that was never used.
func newNumber(tx *bbolt.Tx) ([]byte, error) {
	n, err := tx.Bucket(bucketSessions).NextSequence()
	return number(n), err
}
