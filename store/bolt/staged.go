package bolt

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// staged is records of a session that is still to be created. They stand under an
// unlinked number: whatever happens, they go, unless the commit that creates the session
// takes the number. Which ids they have is kept here until all are known: rows in order
// fill their pages one by one, others would dirty a page each.
type staged struct {
	number []byte
	last   uint64
	chain  backend.Chain
	ids    []stagedID
	index  index // of the rows, once they have been written
}

// stagedID is a row of the index of ids, without the number.
type stagedID struct {
	hash [idHashBytes]byte
	seq  uint64
}

// head is the head of the session that what is staged becomes.
func (st *staged) head() head {
	return head{number: st.number, last: st.last, chain: st.chain, index: st.index}
}

// staging is the sessions that are being staged, by creation id.
type staging struct {
	mu       sync.Mutex
	sessions map[string]*staged
}

// holds reports whether something is being staged under the number.
func (s *staging) holds(number []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.sessions {
		if bytes.Equal(st.number, number) {
			return true
		}
	}
	return false
}

func (s *staging) get(creation string) *staged {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[creation]
}

func (s *staging) put(creation string, st *staged) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		s.sessions = map[string]*staged{}
	}
	s.sessions[creation] = st
}

func (s *staging) remove(creation string) (there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there = s.sessions[creation]
	delete(s.sessions, creation)
	return there
}

// Stage implements [backend.Backend].
func (b *Backend) Stage(ctx context.Context, creation string, after uint64, records []backend.Record) error {
	var next staged
	begun := false
	err := b.update(ctx, func(tx *txn) error {
		if st := b.staged.get(creation); st != nil {
			next = *st
		}
		if next.last != after {
			return backend.ErrMoved
		}
		if err := wellFormed("a session", backend.Batch{Creation: creation, After: after, Records: records}); err != nil {
			return err
		}
		if next.number == nil {
			var err error
			if next.number, err = nextNumber(tx); err != nil {
				return err
			}
			if err := takeNumber(tx); err != nil {
				return err
			}
			if err := unlink(tx, next.number); err != nil {
				return err
			}
			b.staged.put(creation, &staged{number: next.number}) // before a sweep can see it
			begun = true
		}
		return next.putRecords(tx, records)
	})
	if err == nil {
		b.staged.put(creation, &next)
	} else if begun {
		b.staged.remove(creation)
	}
	return err // if the outcome is unknown, the same records may be staged again
}

// putRecords puts records behind those that are staged, and takes note of their ids.
func (st *staged) putRecords(tx *txn, records []backend.Record) error {
	s := session{number: st.number}
	bucket := tx.Bucket(bucketRecords)
	bucket.inOrder()
	for _, r := range records {
		if err := bucket.Put(s.key(number(r.Seq)), r.Data); err != nil {
			return err
		}
		for _, id := range r.IDs {
			st.ids = append(st.ids, stagedID{idHash(id), r.Seq})
		}
		st.chain = st.chain.Add(r.Sum)
	}
	st.last += uint64(len(records))
	return nil
}

// Unstage implements [backend.Backend].
func (b *Backend) Unstage(creation string) {
	if b.staged.remove(creation) {
		b.sweep()
	}
}

// appendStaged appends a batch that creates a session with what is staged for it. All but
// the last commit, which others may share, are invisible.
func (b *Backend) appendStaged(ctx context.Context, name string, batch backend.Batch) error {
	err := b.indexStaged(ctx, batch.Creation)
	if err == nil {
		err = b.append(ctx, name, batch)
	}
	if err == nil || errors.Is(err, backend.ErrUnknown) {
		// The number is the session's, or nobody's. In the file it says which.
		b.staged.remove(batch.Creation)
	}
	return err
}

// stagedIDs is how many rows of the index of ids a commit gets.
const stagedIDs = 4096

// indexStaged writes the index of the ids of what is staged for a session that is about
// to be created, in their order and in bounded steps.
func (b *Backend) indexStaged(ctx context.Context, creation string) error {
	st := b.staged.get(creation)
	if st == nil || len(st.ids) == 0 {
		return nil
	}
	slices.SortStableFunc(st.ids, func(a, b stagedID) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	s := session{number: st.number}
	x := index{}
	for i, row := range st.ids {
		if i+1 == len(st.ids) || row.hash != st.ids[i+1].hash { // an id that is there twice is where it is last
			x = x.add(s.key(row.hash[:]), number(row.seq))
		}
	}
	st.index = x
	for rest := st.ids; len(rest) > 0; {
		some := rest[:min(len(rest), stagedIDs)]
		err := b.update(ctx, func(tx *txn) error {
			bucket := tx.Bucket(bucketIDs)
			bucket.inOrder()
			for _, row := range some {
				if err := bucket.Put(s.key(row.hash[:]), number(row.seq)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		rest = rest[len(some):]
	}
	return nil
}
