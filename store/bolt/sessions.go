package bolt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// session is what bucketSessions holds of one.
type session struct {
	number   []byte
	creation string
	meta     []byte
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

// find returns a session.
func find(tx *bbolt.Tx, name string) (session, error) {
	entry := tx.Bucket(bucketSessions).Get([]byte(name))
	if entry == nil {
		return session{}, backend.ErrNotFound
	}
	return decodeSession(name, entry)
}

// findCreated returns a session that must have been created under the given id.
func findCreated(tx *bbolt.Tx, name, creation string) (session, error) {
	s, err := find(tx, name)
	if err == nil && s.creation != creation {
		err = backend.ErrNotFound
	}
	return s, err
}

// last returns the session's last seq.
func (s session) last(tx *bbolt.Tx) uint64 {
	c := tx.Bucket(bucketRecords).Cursor()
	next := number(binary.BigEndian.Uint64(s.number) + 1)
	k, _ := c.Seek(next)
	if k == nil {
		k, _ = c.Last()
	} else {
		k, _ = c.Prev()
	}
	if !bytes.HasPrefix(k, s.number) {
		return 0
	}
	return binary.BigEndian.Uint64(k[8:])
}

func (s session) head(tx *bbolt.Tx) backend.Head {
	return backend.Head{Creation: s.creation, Meta: s.meta, Last: s.last(tx)}
}

func (s session) key(suffix []byte) []byte {
	return append(bytes.Clone(s.number), suffix...)
}

// Of an id the index holds a hash: rows are half as long, and ids of any length fit. That
// two ids of a session have one hash of 128 bits does not happen; if it did, the second
// would be taken for used.
const idHashBytes = 16

func (s session) idKey(id string) []byte {
	hash := idHash(id)
	return s.key(hash[:])
}

func idHash(id string) [idHashBytes]byte {
	hash := sha256.Sum256([]byte(id))
	return [idHashBytes]byte(hash[:idHashBytes])
}

// Head implements [backend.Backend].
func (b *Backend) Head(ctx context.Context, name string) (head backend.Head, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := find(tx, name)
		if err == nil {
			head = s.head(tx)
		}
		return err
	})
	return head, err
}

// Read implements [backend.Backend].
func (b *Backend) Read(ctx context.Context, name, creation string, from uint64, maxRecords, maxBytes int) (out []backend.Record, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		seq := max(from, 1)
		size := 0
		c := tx.Bucket(bucketRecords).Cursor()
		for k, v := c.Seek(s.key(number(seq))); bytes.HasPrefix(k, s.number); k, v = c.Next() {
			if size += len(v); len(out) > 0 && (len(out) >= maxRecords || size > maxBytes) {
				break
			}
			if binary.BigEndian.Uint64(k[8:]) != seq {
				break // a gap
			}
			out = append(out, backend.Record{Seq: seq, Data: bytes.Clone(v)})
			seq++
		}
		return nil
	})
	return out, err
}

// Pick implements [backend.Backend].
func (b *Backend) Pick(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) (out []backend.Record, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		size := 0
		records := tx.Bucket(bucketRecords)
		for _, seq := range seqs {
			v := records.Get(s.key(number(seq)))
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
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
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
	return seqs, err
}

// Snapshot implements [backend.Backend].
func (b *Backend) Snapshot(ctx context.Context, name, creation string) (data []byte, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err == nil {
			data = bytes.Clone(tx.Bucket(bucketSnapshots).Get(s.number))
		}
		return err
	})
	return data, err
}

// Shared implements [backend.Backend].
func (b *Backend) Shared(ctx context.Context, prefix string) (out []backend.Value, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketShared).Cursor()
		for k, v := c.Seek([]byte(prefix)); bytes.HasPrefix(k, []byte(prefix)) && k != nil; k, v = c.Next() {
			out = append(out, backend.Value{Name: string(k), Data: bytes.Clone(v)})
		}
		return nil
	})
	return out, err
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) (out []backend.Listed, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketSessions).Cursor()
		for k, v := c.Seek([]byte(max(prefix, after))); k != nil && len(out) < limit; k, v = c.Next() {
			if !bytes.HasPrefix(k, []byte(prefix)) {
				break
			}
			if string(k) == after {
				continue
			}
			s, err := decodeSession(string(k), v)
			if err != nil {
				return err
			}
			out = append(out, backend.Listed{Session: string(k), Head: s.head(tx)})
		}
		return nil
	})
	return out, err
}
