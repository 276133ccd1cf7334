package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// cut is what the file held at one moment, but for what stands under the numbers of
// sessions. It is read in one transaction, so it has nothing that is long. What it leads to
// can be read later and bit by bit: rows under a number are added and never changed, and
// while [Backend.pinned] is set none is removed.
type cut struct {
	given    uint64 // the last number given out
	sessions []logged
	unlinked map[string]bool
	shared   []backend.Value
}

// logged is a session, or one that is still being staged, in a cut.
type logged struct {
	name   string
	entry  []byte
	head   head
	staged bool
}

// cut cuts between two commits. locked says that the caller has the writer's place; else it
// is taken, for no longer than it takes to begin.
func (b *Backend) cut(ctx context.Context, locked bool) (c cut, err error) {
	unlock := func() {}
	if !locked {
		if unlock, err = b.lockWriter(ctx); err != nil {
			return cut{}, err
		}
		unlock = sync.OnceFunc(unlock)
	}
	defer unlock()
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		unlock()
		c, err = b.cutAt(tx)
		return err
	})
	return c, err
}

func (b *Backend) cutAt(tx *bbolt.Tx) (cut, error) {
	sessions := tx.Bucket(bucketSessions)
	c := cut{given: sessions.Sequence(), unlinked: map[string]bool{}}
	for name, rows := range names(sessions, tx.Bucket(bucketHeads), "", "") {
		s, err := assemble(tx, name, rows[0], rows[1])
		switch {
		case err != nil:
			return cut{}, err
		case s.old: // the head that upgrade would give it
			last := s.lastRecord(tx)
			s.head = &head{number: s.number, last: last, chain: backend.Chain{Since: last}, index: uncounted}
		case s.head == nil:
			return cut{}, fmt.Errorf("%w: the head of session %q", backend.ErrDamaged, name)
		}
		c.sessions = append(c.sessions, logged{name: name, entry: encodeSession(name, s), head: *s.head})
	}
	if unlinked := tx.Bucket(bucketUnlinked); unlinked != nil {
		for k, v := range pairs(unlinked) {
			if !wholeUnlinked(k, v) {
				return cut{}, fmt.Errorf("%w: the checksum of the unlinked number %x", backend.ErrDamaged, k)
			}
			c.unlinked[string(k)] = true
			if b.staged.holds(k) {
				last := session{number: k}.lastRecord(tx)
				c.sessions = append(c.sessions, logged{head: head{number: k, last: last, index: uncounted}, staged: true})
			}
		}
	}
	slices.SortFunc(c.sessions, func(a, b logged) int { return bytes.Compare(a.head.number, b.head.number) })
	for i, s := range c.sessions {
		if i > 0 && bytes.Equal(s.head.number, c.sessions[i-1].head.number) || binary.BigEndian.Uint64(s.head.number) > c.given {
			return cut{}, fmt.Errorf("%w: session %q: its number %x is another's too, or was never given out", backend.ErrDamaged, s.name, s.head.number)
		}
	}
	c.shared = sharedWith(tx, "")
	for _, v := range c.shared {
		if v.Err != nil {
			return cut{}, fmt.Errorf("shared value %q: %w", v.Name, v.Err)
		}
	}
	return c, known(tx)
}

// known reports whether each bucket is one that a copy knows of.
func known(tx *bbolt.Tx) error {
	buckets := slices.Concat([][]byte{bucketMeta, bucketUnlinked}, oldBuckets, newBuckets)
	return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if !slices.ContainsFunc(buckets, func(b []byte) bool { return bytes.Equal(b, name) }) {
			return fmt.Errorf("%w: bucket %q, which this program does not know how to copy", backend.ErrDamaged, name)
		}
		return nil
	})
}

// pin keeps the rows of deleted sessions from being removed until unpin is called, and what
// is pinned from being pinned twice.
func (b *Backend) pin(ctx context.Context) (unpin func(), err error) {
	select {
	case b.copying <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	unlock, err := b.lockWriter(ctx) // a commit under way may be removing rows
	if err != nil {
		<-b.copying
		return nil, err
	}
	b.pinned.Store(true)
	unlock()
	return func() {
		b.pinned.Store(false)
		if b.kept.Swap(false) {
			b.sweep()
		}
		<-b.copying
	}, nil
}
