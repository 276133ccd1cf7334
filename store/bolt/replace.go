package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"

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
	p := &pending{name: name, batch: backend.Batch{Creation: r.Creation, After: r.Last, Records: r.Appended}}
	for _, x := range r.Appended {
		for _, id := range x.IDs {
			p.hashes = append(p.hashes, hashID(id))
		}
	}
	if err := wellFormed(name, p.batch); err != nil {
		return err
	}
	// The ways are looked over while others write: what they write anew is whole.
	err := b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, r.Creation)
		if err != nil {
			return err
		}
		ways := b.handle.ways(tx)
		for _, x := range r.Records {
			err = errors.Join(err, ways.check(bucketRecords, s.key(x.Seq)))
		}
		next := s.key(r.Last + 1)
		return errors.Join(err, ways.check(bucketRecords, next), ways.check(bucketIDs, next), ways.check(bucketRecords, s.key(0)), ways.check(bucketHeads, []byte(name)), ways.check(bucketSnapshots, s.number), ways.check(bucketSessions, []byte(name)))
	})
	if err != nil {
		return err
	}
	var db *bbolt.DB
	err = b.update(ctx, func(tx *bbolt.Tx) error {
		db = tx.DB()
		var err error
		p.session, err = findWhole(tx, name, r.Creation)
		if err == nil && p.session.head.last != r.Last {
			err = backend.ErrMoved
		}
		if err == nil && len(r.Appended) > 0 {
			err = b.checkRoom(tx, p)
		}
		if err != nil {
			return err
		}
		return b.replaceRecords(tx, name, p.session, r)
	})
	if err == nil && len(r.Appended) > 0 {
		b.known.add(db, p.session.number, *p.session.head, r.Appended, p.hashes)
	}
	return err
}

func (b *Backend) replaceRecords(tx *bbolt.Tx, name string, s session, r backend.Replacement) error {
	records := tx.Bucket(bucketRecords)
	for _, x := range r.Records {
		old, ok, _ := get(records.Cursor(), kindRecord, s.key(x.Seq))
		if x.Seq > r.Last || !ok || !bytes.Equal(old, x.Old) {
			return backend.ErrMoved
		}
	}
	b.editions.next(s.number, tx.ID())
	for _, x := range r.Records {
		if err := records.Put(s.key(x.Seq), seal(kindRecord, s.key(x.Seq), x.Data)); err != nil {
			return err
		}
	}
	s.head.chain = r.After(s.head.chain)
	if err := s.putRecords(tx, r.Appended); err != nil {
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

// editions are how often records of sessions have been replaced since the file was opened. A
// reader sees the number that goes with what its transaction sees.
type editions struct {
	mu sync.Mutex
	of map[uint64]edition // by the session's number
}

type edition struct {
	was, is uint64
	from    int // the transaction whose commit made it so
}

func (e edition) at(tx int) uint64 {
	if tx >= e.from {
		return e.is
	}
	return e.was
}

// get returns a session's edition, as a transaction finds it.
func (e *editions) get(number []byte, tx int) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[binary.BigEndian.Uint64(number)].at(tx)
}

// next gives a session another edition with the commit of a transaction. If that comes to
// nothing, the next commit does it, which harms nobody.
func (e *editions) next(number []byte, tx int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := binary.BigEndian.Uint64(number)
	if e.of == nil {
		e.of = map[uint64]edition{}
	}
	e.of[n] = edition{e.of[n].at(tx), e.of[n].is + 1, tx}
}

// moved is to be called when another file, whose transactions have other numbers, has taken
// the place of the one that was open.
func (e *editions) moved() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n, x := range e.of {
		e.of[n] = edition{x.is, x.is, 0}
	}
}
