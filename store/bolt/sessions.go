package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// session is what bucketSessions holds of one.
type session struct {
	number   []byte
	creation string
	meta     []byte

	head *head   // nil if damage has taken it
	rows []idRow // of the ids of the batch that is to be written
}

// An entry is number ‖ checksum ‖ length of the creation id ‖ creation id ‖ meta.
const (
	entryNumber   = 8
	entrySum      = entryNumber + 4
	entryCreation = entrySum + 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeSession(name string, s session) []byte {
	out := append([]byte{}, s.number...)
	out = append(out, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(len(s.creation)))
	out = append(out, s.creation...)
	out = append(out, s.meta...)
	binary.BigEndian.PutUint32(out[entryNumber:], entrySumOf(name, out))
	return out
}

// entrySumOf is the checksum over the name and all of the entry but itself.
func entrySumOf(name string, entry []byte) uint32 {
	sum := crc32.Checksum([]byte(name), castagnoli)
	sum = crc32.Update(sum, castagnoli, entry[:entryNumber])
	return crc32.Update(sum, castagnoli, entry[entrySum:])
}

func decodeSession(name string, entry []byte) (session, error) {
	if len(entry) < entryCreation || entrySumOf(name, entry) != binary.BigEndian.Uint32(entry[entryNumber:]) {
		return session{}, fmt.Errorf("%w: the checksum of the entry of session %q", backend.ErrDamaged, name)
	}
	entry = bytes.Clone(entry)
	end := entryCreation + int(binary.BigEndian.Uint16(entry[entrySum:]))
	if end > len(entry) {
		return session{}, fmt.Errorf("%w: the entry of session %q", backend.ErrDamaged, name)
	}
	return session{number: entry[:entryNumber:entryNumber], creation: string(entry[entryCreation:end]), meta: entry[end:]}, nil
}

func (s session) portHead(tx *txn) backend.Head {
	h := backend.Head{Creation: s.creation, Meta: s.meta}
	h.Last, h.Damaged = s.end(tx)
	if s.head != nil {
		h.Chain = s.head.chain
	}
	return h
}

// headOf is the session's head with its edition.
func (b *Backend) headOf(tx *txn, s session) backend.Head {
	h := s.portHead(tx)
	h.Edition = b.editions.get(s.number, tx.ID())
	return h
}

func (s session) key(suffix []byte) []byte {
	return append(bytes.Clone(s.number), suffix...)
}

// Head implements [backend.Backend].
func (b *Backend) Head(ctx context.Context, name string) (head backend.Head, err error) {
	err = b.view(ctx, func(tx *txn) error {
		s, err := find(tx, name)
		if err == nil {
			head = b.headOf(tx, s)
		}
		return err
	})
	return head, err
}

// Read implements [backend.Backend].
func (b *Backend) Read(ctx context.Context, name, creation string, from uint64, maxRecords, maxBytes int) (out []backend.Record, err error) {
	err = b.view(ctx, func(tx *txn) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		// What comes before a page that cannot be read can be.
		err = b.handle.guard(func() error {
			for r := range s.read(tx, max(from, 1), maxRecords, maxBytes) {
				out = append(out, r)
			}
			return nil
		})
		if len(out) > 0 {
			err = nil
		}
		return err
	})
	return out, err
}

// read yields the records from seq on that one call may return, up to a gap.
func (s session) read(tx *txn, seq uint64, maxRecords, maxBytes int) iter.Seq[backend.Record] {
	return func(yield func(backend.Record) bool) {
		limit := s.limit()
		c := tx.Bucket(bucketRecords).Cursor()
		for n, size := 0, 0; seq <= limit; n, seq = n+1, seq+1 {
			var k, v []byte
			if n > 0 { // No step is made beyond the limit: it may lead into another session's page.
				k, v = c.Next()
			}
			if s.seqOf(k) != seq {
				if k, v = s.seek(c, seq); k == nil {
					return // a gap
				}
			}
			if size += len(v); n > 0 && (n >= maxRecords || size > maxBytes) {
				return
			}
			if !yield(backend.Record{Seq: seq, Data: bytes.Clone(v)}) {
				return
			}
		}
	}
}

// Since implements [backend.Backend].
func (b *Backend) Since(ctx context.Context, name string, seen backend.Seen, prefixes ...string) (news backend.News, err error) {
	err = b.view(ctx, func(tx *txn) error {
		s, err := find(tx, name)
		if err != nil {
			return err
		}
		news.Head = b.headOf(tx, s)
		if s.creation == seen.Creation {
			news.Meta = nil
			news.Records = slices.Collect(s.read(tx, seen.Last+1, backend.SinceRecords, backend.SinceBytes))
		}
		for _, prefix := range prefixes {
			news.Shared = append(news.Shared, sharedWith(tx, prefix))
		}
		return nil
	})
	return news, err
}

// limit returns a seq that the log does not go beyond.
func (s session) limit() uint64 {
	if s.head == nil {
		return math.MaxUint64
	}
	return s.head.last
}

// Pick implements [backend.Backend].
func (b *Backend) Pick(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) (out []backend.Record, err error) {
	err = b.view(ctx, func(tx *txn) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		size := 0
		c := tx.Bucket(bucketRecords).Cursor()
		for _, seq := range seqs {
			if seq > s.limit() {
				break
			}
			k, v := s.seek(c, seq)
			if k == nil {
				break
			}
			if size += len(v); v == nil || len(out) > 0 && size > maxBytes {
				break
			}
			out = append(out, backend.Record{Seq: seq, Data: bytes.Clone(v)})
		}
		return nil
	})
	return out, err
}

// Lookup implements [backend.Backend].
func (b *Backend) Lookup(ctx context.Context, name, creation string, ids []string) (seqs []uint64, err error) {
	var damage error
	err = b.view(ctx, func(tx *txn) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		damage = b.checkIndex(tx, name, s)
		bucket := tx.Bucket(bucketIDs)
		for _, id := range ids {
			var seq uint64
			if v := bucket.Get(s.idKey(id)); len(v) == 8 {
				seq = binary.BigEndian.Uint64(v)
			}
			seqs = append(seqs, seq)
		}
		return nil
	})
	if err == nil {
		err = damage
	}
	return seqs, err
}

// Snapshot implements [backend.Backend].
func (b *Backend) Snapshot(ctx context.Context, name, creation string) (kept backend.Snapshot, err error) {
	err = b.view(ctx, func(tx *txn) error {
		s, err := findCreated(tx, name, creation)
		if err == nil {
			kept.Data = bytes.Clone(tx.Bucket(bucketSnapshots).Get(s.number))
		}
		return err
	})
	return kept, err
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) (out []backend.Listed, err error) {
	err = b.view(ctx, func(tx *txn) error {
		for name, rows := range names(tx.Bucket(bucketSessions), tx.Bucket(bucketHeads), prefix, after) {
			if len(out) >= limit {
				break
			}
			l := backend.Listed{Session: name}
			// A page of one session that cannot be read keeps no other from being listed.
			l.Err = b.handle.guard(func() error {
				s, err := assemble(tx, name, rows[0], rows[1])
				if err == nil {
					l.Head = b.headOf(tx, s)
					err = l.Head.Err()
				}
				return err
			})
			out = append(out, l)
		}
		return nil
	})
	return out, err
}
