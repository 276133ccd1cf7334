package bolt

import (
	"bytes"
	"context"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// staged is records of a session that is still to be created. They stand under an
// unlinked number: whatever happens, they go, unless the commit that creates the session
// takes the number.
type staged struct {
	number []byte
	head   head // of the session that what is staged becomes
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

// drop leaves nothing staged.
func (s *staging) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = nil
}

// Stage implements [backend.Backend].
func (b *Backend) Stage(ctx context.Context, creation string, after uint64, records []backend.Record) error {
	unlock, err := b.lockWriter(ctx) // until what is staged is known, so that a vacuum knows it too
	if err != nil {
		return err
	}
	defer unlock()
	var next staged
	begun := false
	err = b.write(func(tx *bbolt.Tx) error {
		if st := b.staged.get(creation); st != nil {
			next = *st
		}
		if next.head.last != after {
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
			next.head.number = next.number
			b.staged.put(creation, &staged{next.number, next.head}) // before a sweep can see it
			begun = true
		}
		return session{number: next.number, head: &next.head}.putRecords(tx, records, hashIDs(records))
	})
	if err == nil {
		b.staged.put(creation, &next)
	} else if begun {
		b.staged.remove(creation)
	}
	return err // if the outcome is unknown, the same records may be staged again
}

// Unstage implements [backend.Backend].
func (b *Backend) Unstage(creation string) {
	if b.staged.remove(creation) {
		b.sweep(context.Background())
	}
}
