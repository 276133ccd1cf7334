package bolt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// cut is what the file held at one moment, but for what stands under the numbers of sessions. What it
// leads to can be read later and bit by bit: rows under a number are added and, while [Backend.keeping]
// is set, neither changed nor removed.
type cut struct {
	given    uint64                       // the last number given out
	names    map[string]map[string][]byte // rows by bucket and key
	sessions []logged                     // in the order of numbers
	unlinked []string                     // numbers
}

// logged is a session in a cut, or, without a name, one that is being staged.
type logged struct {
	name string
	head head
}

var nameBuckets = [][]byte{bucketSessions, bucketHeads, bucketShared, bucketSharedNames}

// rowBuckets have rows whose keys begin with a session's number.
var rowBuckets = [][]byte{bucketRecords, bucketIDs, bucketSnapshots}

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
	c.names = map[string]map[string][]byte{}
	if err := b.view(ctx, func(tx *bbolt.Tx) error {
		c.sessions = b.staged.logged()
		unlock()
		c.given = tx.Bucket(bucketSessions).Sequence()
		for _, bucket := range nameBuckets {
			all := map[string][]byte{}
			for k, row := range rows(tx.Bucket(bucket), nil) {
				all[string(k)] = bytes.Clone(row)
			}
			c.names[string(bucket)] = all
		}
		for k, row := range rows(tx.Bucket(bucketUnlinked), nil) {
			if _, ok := unseal(kindUnlinked, k, row); !ok {
				return fmt.Errorf("%w: the checksum of the unlinked number %x", backend.ErrDamaged, k)
			}
			c.unlinked = append(c.unlinked, string(k))
		}
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if !slices.ContainsFunc(buckets, func(b []byte) bool { return bytes.Equal(b, name) }) {
				return fmt.Errorf("%w: bucket %q, which this program does not know how to copy", backend.ErrDamaged, name)
			}
			return nil
		})
	}); err != nil {
		return cut{}, err
	}
	return c, c.check()
}

// check makes out the sessions, and reports whether all that has a name is whole.
func (c *cut) check() error {
	heads := c.names[string(bucketHeads)]
	for name, row := range c.names[string(bucketSessions)] {
		value, _ := unseal(kindEntry, []byte(name), row)
		s, ok := decodeEntry(value)
		value, _ = unseal(kindHead, []byte(name), heads[name])
		h, okHead := decodeHead(value)
		if !ok || !okHead || !bytes.Equal(s.number, h.number) {
			return fmt.Errorf("%w: the entry or the head of session %q", backend.ErrDamaged, name)
		}
		c.sessions = append(c.sessions, logged{name, h})
	}
	for name := range heads {
		if c.names[string(bucketSessions)][name] == nil {
			return fmt.Errorf("%w: session %q has a head but no entry", backend.ErrDamaged, name)
		}
	}
	slices.SortFunc(c.sessions, func(a, b logged) int {
		return cmp.Or(bytes.Compare(a.head.number, b.head.number), -strings.Compare(a.name, b.name))
	})
	c.sessions = slices.CompactFunc(c.sessions, func(a, b logged) bool { // what was staged has just become a session
		return (a.name == "" || b.name == "") && bytes.Equal(a.head.number, b.head.number)
	})
	for i, l := range c.sessions {
		if i > 0 && bytes.Equal(l.head.number, c.sessions[i-1].head.number) || string(l.head.number) > string(number(c.given)) {
			return fmt.Errorf("%w: session %q: its number %x is another's too, or was never given out", backend.ErrDamaged, l.name, l.head.number)
		}
	}
	values, marks := c.names[string(bucketShared)], c.names[string(bucketSharedNames)]
	for name, row := range values {
		_, ok := unseal(kindShared, []byte(name), row)
		if _, okName := unseal(kindName, []byte(name), marks[name]); !ok || !okName {
			return fmt.Errorf("%w: the checksum of shared value %q, or of its name", backend.ErrDamaged, name)
		}
	}
	for name := range marks {
		if values[name] == nil {
			return fmt.Errorf("%w: shared value %q is missing", backend.ErrDamaged, name)
		}
	}
	return nil
}

// logged returns what is being staged.
func (s *staging) logged() (out []logged) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.sessions {
		out = append(out, logged{head: st.head})
	}
	return out
}

// keepRows keeps the rows of sessions from being changed or removed until letGo is called. One
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

// replica is another file that is brought to what a cut of a backend holds, and then to what a
// later one does.
//
// The backend is read in short transactions: one that is open for long makes its file grow
// with each commit, and may keep a commit waiting.
type replica struct {
	of     *Backend
	db     *bbolt.DB
	sum    func(record []byte) uint32
	vacuum bool // snapshots are copied too; one may be of a later record than the cut

	copied map[string]*extent // by number
	names  map[string]map[string][]byte
	tx     *bbolt.Tx // under way
	bytes  int       // that tx puts
}

// extent is what a replica has of what stands under a number.
type extent struct {
	next     [3]uint64 // seq, by bucket; 0 if nothing has been copied
	chain    backend.Chain
	index    index
	unlinked bool
}

// A transaction that reads copies so many rows or bytes out, and one that writes the replica
// puts so many bytes. The replica is synced after each: a sync of the backend's file may have
// to wait for what other files have to write.
const (
	sliceRows    = 512
	sliceBytes   = 1 << 20
	replicaBytes = 8 << 20
)

// replicate makes a replica in a new file, of a backend whose rows are kept.
func (b *Backend) replicate(path string, sum func([]byte) uint32, vacuum bool) (*replica, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMmapSize, NoSync: true, NoGrowSync: true,
	})
	if err != nil {
		return nil, err
	}
	r := &replica{of: b, db: db, sum: sum, vacuum: vacuum, copied: map[string]*extent{}}
	if err := db.Update(initialise); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

// close makes the replica durable.
func (r *replica) close() error {
	var err error
	if r.tx != nil {
		err = r.tx.Rollback()
	}
	return errors.Join(err, r.db.Sync(), r.db.Close())
}

// bring brings the replica to a cut, which is later than the one before, and returns how many
// rows it took.
func (r *replica) bring(ctx context.Context, to cut) (n int, err error) {
	for i, bucket := range rowBuckets {
		if i == 2 && !r.vacuum {
			continue
		}
		if r.names == nil {
			if err := r.checkStrays(ctx, to, bucket); err != nil {
				return n, err
			}
		}
		copied, err := r.bringRows(ctx, to, i)
		if n += copied; err != nil {
			return n, err
		}
	}
	changed, err := r.bringNames(to)
	if err == nil {
		err = errors.Join(r.commit(), ctx.Err())
	}
	r.names = to.names
	return n + changed, err
}

func (r *replica) write(size int, f func(tx *bbolt.Tx) error) (err error) {
	if r.tx == nil {
		if r.tx, err = r.db.Begin(true); err != nil {
			return err
		}
	}
	if err := f(r.tx); err != nil {
		return err
	}
	if r.bytes += size; r.bytes < replicaBytes {
		return nil
	}
	return r.commit()
}

func (r *replica) commit() error {
	if r.tx == nil {
		return nil
	}
	err := r.tx.Commit()
	r.tx, r.bytes = nil, 0
	return errors.Join(err, r.db.Sync())
}

// slice is what a short transaction of the backend reads.
type slice struct {
	rows  [][2][]byte
	bytes int
}

func (s *slice) full() bool { return len(s.rows) >= sliceRows || s.bytes >= sliceBytes }

func (s *slice) add(k, v []byte) {
	s.rows = append(s.rows, [2][]byte{bytes.Clone(k), bytes.Clone(v)})
	s.bytes += len(k) + len(v)
}

// bringRows copies what the cut has more in a bucket, session by session.
func (r *replica) bringRows(ctx context.Context, to cut, bucket int) (n int, err error) {
	var todo []logged
	for _, l := range to.sessions {
		x := r.copied[string(l.head.number)]
		if x == nil {
			x = &extent{}
			r.copied[string(l.head.number)] = x
		}
		if x.next[bucket] <= l.head.last {
			todo = append(todo, l)
		}
	}
	for len(todo) > 0 {
		var s slice
		if err := r.of.view(ctx, func(tx *bbolt.Tx) error {
			for looked := 0; len(todo) > 0 && looked < sliceRows && !s.full(); looked++ {
				more, err := r.copySome(tx, bucket, todo[0], &s)
				if err != nil {
					return err
				}
				if !more {
					todo = todo[1:]
				}
			}
			return nil
		}); err != nil {
			return n, err
		}
		for _, row := range s.rows {
			if err := r.write(len(row[0])+len(row[1]), func(tx *bbolt.Tx) error {
				rows := tx.Bucket(rowBuckets[bucket])
				rows.FillPercent = fillPercent
				return rows.Put(row[0], row[1])
			}); err != nil {
				return n, err
			}
		}
		n += len(s.rows)
	}
	return n, nil
}

// copySome copies rows of a session, and holds them against its head when it has all.
func (r *replica) copySome(tx *bbolt.Tx, bucket int, l logged, s *slice) (more bool, err error) {
	x, of := r.copied[string(l.head.number)], session{number: l.head.number}
	name, next := rowBuckets[bucket], &x.next[bucket]
	if bucket == 2 {
		if row := tx.Bucket(name).Get(of.number); row != nil {
			s.add(of.number, row)
		}
		*next = 1<<64 - 1 // an older one is as good
		return false, nil
	}
	c := tx.Bucket(name).Cursor()
	from := max(*next, 1) // before that is the label
	k, row := c.Seek(of.key(from))
	for ; bytes.HasPrefix(k, of.number) && of.seqOf(k) <= l.head.last; k, row = c.Next() {
		if s.full() {
			return true, nil
		}
		seq := of.seqOf(k)
		if bucket == 1 {
			if _, ok := unseal(kindIDs, k, row); !ok {
				return false, fmt.Errorf("%w: the index of ids of session %q: the ids of record %d", backend.ErrDamaged, l.name, seq)
			}
			x.index = x.index.add(row)
		} else {
			_, ok := unseal(kindRecord, k, row)
			if !ok && r.vacuum || seq != from || len(row) < checksumBytes { // whoever reads a copy says which record is damaged
				return false, fmt.Errorf("%w: record %d of session %q is missing, or is not what was written", backend.ErrDamaged, from, l.name)
			}
			x.chain = x.chain.Add(r.sum(row[checksumBytes:]))
		}
		from = seq + 1
		*next = from
		s.add(k, row)
	}
	if bucket == 0 && from != l.head.last+1 {
		return false, fmt.Errorf("%w: record %d of session %q is missing; its last is %d", backend.ErrDamaged, from, l.name, l.head.last)
	}
	*next = l.head.last + 1
	switch {
	case bucket == 0 && x.chain != l.head.chain:
		return false, fmt.Errorf("%w: the records of session %q are not those that were written: the chain over 1 to %d is %08x, and should be %08x",
			backend.ErrDamaged, l.name, l.head.last, x.chain.Sum, l.head.chain.Sum)
	case bucket == 1 && x.index != l.head.index:
		return false, fmt.Errorf("%w: the index of ids of session %q has %d rows of sum %08x, want %d of sum %08x",
			backend.ErrDamaged, l.name, x.index.rows, x.index.sum, l.head.index.rows, l.head.index.sum)
	case bucket == 0 && l.name != "" && bytes.HasPrefix(k, of.number): // it may have grown since the cut
		now, err := find(tx, l.name)
		if err == nil && bytes.Equal(now.number, of.number) {
			err = r.of.headOf(tx, now).Err()
		}
		if err != nil && !errors.Is(err, backend.ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

// checkStrays returns an error if the bucket has rows that were no session's when the cut was made:
// damage may have taken the session.
func (r *replica) checkStrays(ctx context.Context, to cut, bucket []byte) error {
	numbers := slices.Clone(to.unlinked)
	for _, l := range to.sessions {
		numbers = append(numbers, string(l.head.number))
	}
	slices.Sort(numbers)
	numbers = append(numbers, string(number(to.given+1)))
	above := number(0)
	for len(numbers) > 0 {
		some := numbers[:min(len(numbers), sliceRows)]
		if err := r.of.view(ctx, func(tx *bbolt.Tx) error {
			c := tx.Bucket(bucket).Cursor()
			for _, n := range some {
				if k, _ := c.Seek(above); k != nil && string(k) < n {
					return fmt.Errorf("%w: bucket %q has key %x, of a session that is not there", backend.ErrDamaged, bucket, k)
				}
				above = number(session{number: []byte(n)}.id() + 1)
			}
			return nil
		}); err != nil {
			return err
		}
		numbers = numbers[len(some):]
	}
	return nil
}

// bringNames makes sessions, heads and shared values those of the cut. What stands under
// other numbers becomes nobody's.
func (r *replica) bringNames(to cut) (n int, err error) {
	for _, bucket := range nameBuckets {
		before, now := r.names[string(bucket)], to.names[string(bucket)]
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if row := now[name]; !bytes.Equal(before[name], row) {
				n++
				if err := r.write(len(name)+len(row), func(tx *bbolt.Tx) error {
					if bytes.Equal(bucket, bucketSessions) { // which is checked
						value, _ := unseal(kindEntry, []byte(name), row)
						s, _ := decodeEntry(value)
						return putEntry(tx, name, s)
					}
					return tx.Bucket(bucket).Put([]byte(name), row)
				}); err != nil {
					return n, err
				}
			}
		}
		for name := range before {
			if now[name] == nil {
				n++
				if err := r.write(len(name), func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Delete([]byte(name)) }); err != nil {
					return n, err
				}
			}
		}
	}
	linked := map[string]bool{}
	for _, l := range to.sessions {
		linked[string(l.head.number)] = l.name != ""
	}
	return n, r.write(0, func(tx *bbolt.Tx) (err error) {
		for n, x := range r.copied {
			switch {
			case x.unlinked == !linked[n]:
			case linked[n]:
				err = errors.Join(err, tx.Bucket(bucketUnlinked).Delete([]byte(n)))
			default:
				err = errors.Join(err, unlink(tx, []byte(n)))
			}
			x.unlinked = !linked[n]
		}
		return errors.Join(err, tx.Bucket(bucketSessions).SetSequence(to.given), setVersion(tx, to.given))
	})
}
