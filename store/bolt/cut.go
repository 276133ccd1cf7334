package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// cut is what the file held at one moment, but for what stands under the numbers of
// sessions. It is read in one transaction, so it has nothing that is long. What it leads to
// can be read later and bit by bit: rows under a number are added and never changed, and
// while [Backend.keeping] is set none is removed.
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
	var read reading
	if err := b.view(ctx, func(tx *txn) error {
		unlock()
		return read.all(tx, &b.staged)
	}); err != nil {
		return cut{}, err
	}
	return read.cut()
}

// reading is what a cut is made of, as it stands in the file. To copy it out is all that is
// done in the transaction.
type reading struct {
	given    uint64
	rows     []namedRow // of sessions
	whole    []logged   // sessions that it takes the transaction to make out
	unlinked map[string]bool
	shared   []namedRow
	values   []backend.Value // shared values of that kind
	room     copied
}

// namedRow is a name, and what stands under it in the bucket of entries or shared values, and
// in that of heads.
type namedRow struct{ name, row, head []byte }

// copied is room for what is copied out of a transaction: an allocation for each row would take
// longer than reading it.
type copied []byte

const copiedBytes = 1 << 20

func (c *copied) clone(b []byte) []byte {
	if len(b) > cap(*c)-len(*c) {
		*c = make([]byte, 0, max(copiedBytes, len(b)))
	}
	at := len(*c)
	*c = append(*c, b...)
	return (*c)[at:len(*c):len(*c)]
}

func (r *reading) all(tx *txn, staging *staging) error {
	if err := known(tx); err != nil {
		return err
	}
	sessions := tx.Bucket(bucketSessions)
	r.given = sessions.Sequence()
	for name, rows := range names(sessions, tx.Bucket(bucketHeads), "", "") {
		if rows[0] != nil && rows[1] != nil {
			r.rows = append(r.rows, namedRow{r.room.clone([]byte(name)), r.room.clone(rows[0]), r.room.clone(rows[1])})
			continue
		}
		s, err := assemble(tx, name, rows[0], rows[1])
		switch {
		case err != nil:
			return err
		case s.head == nil:
			return fmt.Errorf("%w: the head of session %q", backend.ErrDamaged, name)
		}
		r.whole = append(r.whole, logged{name: name, entry: encodeSession(name, s), head: *s.head})
	}
	for name, rows := range names(tx.Bucket(bucketShared), tx.Bucket(bucketSharedNames), "", "") {
		if rows[0] != nil && rows[1] != nil {
			r.shared = append(r.shared, namedRow{name: r.room.clone([]byte(name)), row: r.room.clone(rows[0])})
			continue
		}
		data, err := sharedData(tx, name, rows[0], rows[1])
		switch {
		case err != nil:
			return fmt.Errorf("shared value %q: %w", name, err)
		case data != nil:
			r.values = append(r.values, backend.Value{Name: name, Data: data})
		}
	}
	return r.unlinkedNumbers(tx, staging)
}

func (r *reading) unlinkedNumbers(tx *txn, staging *staging) error {
	r.unlinked = map[string]bool{}
	unlinked := tx.Bucket(bucketUnlinked)
	if unlinked == nil {
		return nil
	}
	for k, v := range pairs(unlinked) {
		if !wholeUnlinked(k, v) {
			return fmt.Errorf("%w: the checksum of the unlinked number %x", backend.ErrDamaged, k)
		}
		r.unlinked[string(k)] = true
		if staging.holds(k) {
			last := session{number: k}.lastRecord(tx)
			r.whole = append(r.whole, logged{head: head{number: k, last: last}, staged: true})
		}
	}
	return nil
}

// cut makes out what has been read.
func (r *reading) cut() (cut, error) {
	c := cut{given: r.given, sessions: r.whole, unlinked: r.unlinked, shared: r.values}
	for _, row := range r.rows {
		name := string(row.name)
		s, err := decodeSession(name, row.row)
		if err != nil {
			return cut{}, err
		}
		h, err := decodeHead(name, row.head)
		if err != nil {
			return cut{}, err
		}
		if !bytes.Equal(s.number, h.number) {
			return cut{}, fmt.Errorf("%w: session %q has the numbers %x and %x", backend.ErrDamaged, name, s.number, h.number)
		}
		c.sessions = append(c.sessions, logged{name: name, entry: row.row, head: h})
	}
	slices.SortFunc(c.sessions, func(a, b logged) int { return bytes.Compare(a.head.number, b.head.number) })
	for i, s := range c.sessions {
		if i > 0 && bytes.Equal(s.head.number, c.sessions[i-1].head.number) || binary.BigEndian.Uint64(s.head.number) > c.given {
			return cut{}, fmt.Errorf("%w: session %q: its number %x is another's too, or was never given out", backend.ErrDamaged, s.name, s.head.number)
		}
	}
	for _, row := range r.shared {
		if len(row.row) < 4 || binary.BigEndian.Uint32(row.row) != sumOf(row.name, row.row[4:]) {
			return cut{}, fmt.Errorf("%w: the checksum of shared value %q", backend.ErrDamaged, row.name)
		}
		c.shared = append(c.shared, backend.Value{Name: string(row.name), Data: row.row[4:]})
	}
	return c, nil
}

// known reports whether each bucket is one that a copy knows of.
func known(tx *txn) error {
	known := slices.Concat([][]byte{bucketUnlinked}, buckets)
	return tx.ForEach(func(name []byte) error {
		if !slices.ContainsFunc(known, func(b []byte) bool { return bytes.Equal(b, name) }) {
			return fmt.Errorf("%w: bucket %q, which this program does not know how to copy", backend.ErrDamaged, name)
		}
		return nil
	})
}

// keepRows keeps the rows of deleted sessions from being removed until letGo is called. One
// caller at a time has them kept.
func (b *Backend) keepRows(ctx context.Context) (letGo func(), err error) {
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
	b.keeping.Store(true)
	unlock()
	return func() {
		b.keeping.Store(false)
		if b.kept.Swap(false) {
			b.sweep()
		}
		<-b.copying
	}, nil
}
