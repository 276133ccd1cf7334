package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// replica is another file that is brought to what a cut of a backend holds, and then to what a
// later one does. It is always of the newest version.
//
// The backend is read in short transactions: one that is open for long makes its file grow
// with each commit, and may keep a commit waiting.
type replica struct {
	of        *Backend
	db        *bbolt.DB
	sum       func(record []byte) uint32
	snapshots bool // are copied too; one may be of a later record than the cut

	copied  map[string]extent // by number
	at      cut               // what it has been brought to
	brought bool

	tx    *txn // under way
	bytes int  // that tx puts
}

// extent is what a replica has of what stands under a number.
type extent struct {
	last    uint64
	chain   backend.Chain
	indexed uint64 // the ids up to this seq
	index   index

	snapshot bool // was looked for
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
func (b *Backend) replicate(path string, sum func([]byte) uint32, snapshots bool) (*replica, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMmapSize, NoSync: true, NoGrowSync: true,
	})
	if err != nil {
		return nil, err
	}
	r := &replica{of: b, db: db, sum: sum, snapshots: snapshots, copied: map[string]extent{}}
	if err := db.Update(func(tx *bbolt.Tx) error { return initialise(newTxn(tx)) }); err != nil {
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
func (r *replica) bring(ctx context.Context, to cut) (rows int, err error) {
	for _, step := range []func(context.Context, cut) (int, error){r.bringRecords, r.bringIDs, r.bringSnapshots, r.bringNames} {
		n, err := step(ctx, to)
		if rows += n; err != nil {
			return rows, err
		}
	}
	if err := r.commit(); err != nil {
		return rows, err
	}
	r.at, r.brought = to, true
	return rows, nil
}

func (r *replica) put(bucket, key, value []byte) error {
	return r.write(len(key)+len(value), func(tx *txn) error {
		rows := tx.Bucket(bucket)
		rows.inOrder()
		return rows.Put(key, value)
	})
}

func (r *replica) write(size int, f func(tx *txn) error) (err error) {
	if r.tx == nil {
		tx, err := r.db.Begin(true)
		if err != nil {
			return err
		}
		r.tx = newTxn(tx)
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

// slice is a short transaction of the backend, and what it reads.
type slice struct {
	tx    *txn
	rows  [][2][]byte
	bytes int
}

func (s *slice) full() bool { return len(s.rows) >= sliceRows || s.bytes >= sliceBytes }

func (s *slice) add(k, v []byte) {
	s.rows = append(s.rows, [2][]byte{bytes.Clone(k), bytes.Clone(v)})
	s.bytes += len(k) + len(v)
}

// each calls copy for the sessions of the cut that are wanted, in the order of numbers, each
// as often as it asks for more: with a transaction that has room. What it adds to the slice is
// put into the bucket. The first time all that is in the bucket must be somebody's.
func (r *replica) each(ctx context.Context, to cut, bucket []byte, wanted func(l logged, x extent) bool, copy func(s *slice, l logged) (more bool, err error)) (rows int, err error) {
	var sessions []logged
	for _, l := range to.sessions {
		if x, there := r.copied[string(l.head.number)]; !there || wanted(l, x) {
			sessions = append(sessions, l)
		}
	}
	if !r.brought {
		if err := r.strays(ctx, to, bucket); err != nil {
			return 0, err
		}
	}
	for len(sessions) > 0 {
		var s slice
		if err := r.of.view(ctx, func(tx *txn) error {
			s.tx = tx
			for n := 0; len(sessions) > 0 && n < sliceRows && !s.full(); n++ {
				more, err := copy(&s, sessions[0])
				if err != nil {
					return err
				}
				if !more {
					sessions = sessions[1:]
				}
			}
			return nil
		}); err != nil {
			return rows, err
		}
		for _, row := range s.rows {
			if err := r.put(bucket, row[0], row[1]); err != nil {
				return rows, err
			}
		}
		rows += len(s.rows)
	}
	return rows, nil
}

// strays returns an error if the bucket has rows that were no session's when the cut was made:
// damage may have taken the session.
func (r *replica) strays(ctx context.Context, to cut, bucket []byte) error {
	numbers := slices.Sorted(maps.Keys(to.unlinked))
	for _, l := range to.sessions {
		if !l.staged {
			numbers = append(numbers, string(l.head.number))
		}
	}
	slices.Sort(numbers)
	numbers = append(numbers, string(number(to.given+1)))
	above := uint64(0)
	for len(numbers) > 0 {
		some := numbers[:min(len(numbers), sliceRows)]
		if err := r.of.view(ctx, func(tx *txn) error {
			c := tx.Bucket(bucket).Cursor()
			for _, n := range some {
				if k, _ := c.Seek(number(above)); k != nil && string(k) < n {
					return fmt.Errorf("%w: bucket %q has key %x, of a session that is not there", backend.ErrDamaged, bucket, k)
				}
				above = binary.BigEndian.Uint64([]byte(n)) + 1
			}
			return nil
		}); err != nil {
			return err
		}
		numbers = numbers[len(some):]
	}
	return nil
}

// bringRecords copies the records that the cut has more, and follows their chains.
func (r *replica) bringRecords(ctx context.Context, to cut) (int, error) {
	wanted := func(l logged, x extent) bool { return x.last != l.head.last }
	return r.each(ctx, to, bucketRecords, wanted, func(s *slice, l logged) (more bool, err error) {
		x := r.copied[string(l.head.number)]
		log := session{number: l.head.number}
		c := s.tx.Bucket(bucketRecords).Cursor()
		for k, v := c.Seek(log.key(number(x.last + 1))); x.last < l.head.last && !s.full(); k, v = c.Next() {
			if log.seqOf(k) != x.last+1 {
				return false, fmt.Errorf("%w: record %d of session %q is missing; its last is %d", backend.ErrDamaged, x.last+1, l.name, l.head.last)
			}
			x.last++
			x.chain = x.chain.Add(r.sum(v))
			s.add(k, v)
		}
		r.copied[string(l.head.number)] = x
		switch {
		case x.last < l.head.last:
			return true, nil
		case l.staged:
			return false, nil
		case x.chain != l.head.chain:
			return false, fmt.Errorf("%w: the records of session %q are not those that were written: the chain over 1 to %d is %08x, and should be %08x",
				backend.ErrDamaged, l.name, x.last, x.chain.Sum, l.head.chain.Sum)
		}
		return false, ended(s.tx, l)
	})
}

// ended returns an error if it is in doubt where a session's log ends, which may have gone on
// since the cut.
func ended(tx *txn, l logged) error {
	s, err := findCreated(tx, l.name, creationOf(l))
	switch {
	case errors.Is(err, backend.ErrNotFound): // deleted since
		return nil
	case err != nil:
		return err
	}
	return s.portHead(tx).Err()
}

func creationOf(l logged) string {
	s, _ := decodeSession(l.name, l.entry)
	return s.creation
}

// bringIDs copies the rows of the ids of these records, and counts them.
func (r *replica) bringIDs(ctx context.Context, to cut) (int, error) {
	wanted := func(l logged, x extent) bool { return x.indexed != l.head.last || l.staged }
	var after []byte // of a session that is read on
	return r.each(ctx, to, bucketIDs, wanted, func(s *slice, l logged) (more bool, err error) {
		x := r.copied[string(l.head.number)]
		c := s.tx.Bucket(bucketIDs).Cursor()
		k, v := c.Seek(l.head.number)
		if after != nil {
			if k, v = c.Seek(after); bytes.Equal(k, after) {
				k, v = c.Next()
			}
		}
		for seen := 0; bytes.HasPrefix(k, l.head.number); k, v = c.Next() {
			if seen++; seen > 8*sliceRows || s.full() {
				r.copied[string(l.head.number)] = x
				return true, nil
			}
			after = bytes.Clone(k)
			if len(v) != 8 {
				return false, fmt.Errorf("%w: the index of ids of session %q: a row of %d bytes", backend.ErrDamaged, l.name, len(v))
			}
			if seq := binary.BigEndian.Uint64(v); seq > x.indexed && seq <= l.head.last || l.staged {
				s.add(k, v)
				x.index = x.index.add(k, v)
			}
		}
		after = nil
		if l.staged { // its rows are no more than a beginning
			x.index = index{}
		} else if x.indexed = l.head.last; l.head.index != x.index {
			return false, fmt.Errorf("%w: the index of ids of session %q has %d rows of sum %08x, want %d of sum %08x",
				backend.ErrDamaged, l.name, x.index.rows, x.index.sum, l.head.index.rows, l.head.index.sum)
		}
		r.copied[string(l.head.number)] = x
		return false, nil
	})
}

// bringSnapshots copies the snapshots as they are now, once for each session: an older one is as
// good.
func (r *replica) bringSnapshots(ctx context.Context, to cut) (int, error) {
	if !r.snapshots {
		return 0, nil
	}
	wanted := func(l logged, x extent) bool { return !l.staged && !x.snapshot }
	return r.each(ctx, to, bucketSnapshots, wanted, func(s *slice, l logged) (bool, error) {
		if v := s.tx.Bucket(bucketSnapshots).Get(l.head.number); v != nil {
			s.add(l.head.number, v)
		}
		x := r.copied[string(l.head.number)]
		x.snapshot = !l.staged
		r.copied[string(l.head.number)] = x
		return false, nil
	})
}

// bringNames makes sessions, heads and shared values those of the cut. What stands under
// other numbers becomes nobody's.
func (r *replica) bringNames(ctx context.Context, to cut) (rows int, err error) {
	put := func(bucket []byte, key string, value []byte) {
		if rows++; err == nil {
			err = r.put(bucket, []byte(key), value)
		}
	}
	before := map[string]logged{}
	for _, l := range r.at.sessions {
		if !l.staged {
			before[l.name] = l
		}
	}
	linked := map[string]bool{}
	for _, l := range to.sessions {
		if l.staged {
			continue
		}
		linked[string(l.head.number)] = true
		b, there := before[l.name]
		delete(before, l.name)
		if there && bytes.Equal(b.head.number, l.head.number) && b.head.last == l.head.last && b.head.index == l.head.index {
			continue
		}
		put(bucketSessions, l.name, l.entry)
		put(bucketHeads, l.name, encodeHead(l.name, l.head))
	}
	values := map[string][]byte{}
	for _, v := range r.at.shared {
		values[v.Name] = v.Data
	}
	var changed []backend.Value
	size := 0
	for _, v := range to.shared {
		if old, there := values[v.Name]; !there || !bytes.Equal(old, v.Data) {
			changed = append(changed, v)
			size += len(v.Name) + len(v.Data)
		}
	}
	rows += len(changed)
	if err != nil {
		return rows, err
	}
	return rows, r.write(size, func(tx *txn) error {
		for name := range before {
			err = errors.Join(err, tx.Bucket(bucketSessions).Delete([]byte(name)), tx.Bucket(bucketHeads).Delete([]byte(name)))
		}
		for n, x := range r.copied {
			if x.unlinked == !linked[n] {
				continue
			}
			if x.unlinked = !linked[n]; x.unlinked {
				err = errors.Join(err, unlink(tx, []byte(n)))
			} else {
				err = errors.Join(err, tx.Bucket(bucketUnlinked).Delete([]byte(n)))
			}
			r.copied[n] = x
		}
		return errors.Join(err, putShared(tx, changed), tx.Bucket(bucketSessions).written.SetSequence(to.given), setVersion(tx, to.given), ctx.Err())
	})
}
