package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

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
	// The ways are looked over while others write: what they write anew is whole.
	err := b.view(ctx, func(tx *txn) error {
		s, err := findCreated(tx, name, r.Creation)
		if err != nil {
			return err
		}
		return checkWaysOf(tx, name, s, r)
	})
	if err != nil {
		return err
	}
	return b.update(ctx, func(tx *txn) error {
		s, err := findCreated(tx, name, r.Creation)
		switch {
		case err != nil:
			return err
		case s.head == nil:
			return fmt.Errorf("%w: the head of session %q", backend.ErrDamaged, name)
		case s.head.last != r.Last:
			return backend.ErrMoved
		}
		return b.replaceRecords(tx, name, s, r)
	})
}

// checkWaysOf looks over the pages that a replacement will write anew.
func checkWaysOf(tx *txn, name string, s session, r backend.Replacement) error {
	paths := pathsOf(tx)
	for _, x := range r.Records {
		if err := paths.sound(bucketRecords, s.key(number(x.Seq))); err != nil {
			return err
		}
	}
	return errors.Join(paths.sound(bucketHeads, []byte(name)), paths.sound(bucketSnapshots, s.number), paths.sound(bucketSessions, []byte(name)))
}

func (b *Backend) replaceRecords(tx *txn, name string, s session, r backend.Replacement) error {
	records := tx.Bucket(bucketRecords)
	for _, x := range r.Records {
		if x.Seq > r.Last || !bytes.Equal(records.Get(s.key(number(x.Seq))), x.Old) || len(x.Old) == 0 {
			return backend.ErrMoved
		}
	}
	b.editions.next(s.number, tx.ID())
	for _, x := range r.Records {
		if err := records.Put(s.key(number(x.Seq)), x.Data); err != nil {
			return err
		}
	}
	h := *s.head
	h.chain = r.After(h.chain)
	if err := tx.Bucket(bucketHeads).Put([]byte(name), encodeHead(name, h)); err != nil {
		return err
	}
	if r.Meta != nil {
		s.meta = r.Meta
		if err := tx.Bucket(bucketSessions).Put([]byte(name), encodeSession(name, s)); err != nil {
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
