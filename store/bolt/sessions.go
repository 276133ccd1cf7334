package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// session is a session's head, from bucketHeads, and its entry, from bucketSessions. Most calls read only the head,
// because the entry has the initial state and may be long.
type session struct {
	name     string
	number   []byte
	creation string
	meta     []byte // nil until the entry is read
	head     *head
}

// head describes the end of a session's log. It includes the chain, a checksum over the checksums of all records. An
// append writes the head but not the entry.
type head struct {
	headFields
	counts []byte
}

// headFields are stored big endian, without gaps.
type headFields struct {
	Number, Last uint64
	Chain        backend.Chain
	Edition      uint64 // number of replacements of records
	Token        backend.Token
}

// displayName returns a name for messages. In a stored name, each part ends with the bytes 0 and 1. displayName
// joins the parts with slashes.
func displayName(name string) string {
	return strings.ReplaceAll(strings.TrimSuffix(name, "\x00\x01"), "\x00\x01", "/")
}

// number encodes a session number or a seq in eight bytes.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (s session) id() uint64 { return binary.BigEndian.Uint64(s.number) }

// key returns the key of a record, or the key of the label if seq is 0.
func (s session) key(seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 16), s.number...), seq)
}

// seqOf returns the seq in the key of a record, or 0 if the key belongs to another session.
func (s session) seqOf(k []byte) uint64 {
	if len(k) != 16 || !bytes.HasPrefix(k, s.number) {
		return 0
	}
	return binary.BigEndian.Uint64(k[8:])
}

// entry returns the encoded entry: number (8) ‖ length of the creation id (2) ‖ creation id ‖ meta.
func (s session) entry() []byte {
	out := binary.BigEndian.AppendUint16(append(make([]byte, 0, 10+len(s.creation)+len(s.meta)), s.number...), uint16(len(s.creation)))
	return append(append(out, s.creation...), s.meta...)
}

// decodeEntry decodes an entry. The result does not share memory with entry.
func decodeEntry(entry []byte) (s session, ok bool) {
	if len(entry) < 10 || len(entry) < 10+int(binary.BigEndian.Uint16(entry[8:])) {
		return s, false
	}
	entry = bytes.Clone(entry)
	end := 10 + int(binary.BigEndian.Uint16(entry[8:]))
	return session{number: entry[:8:8], creation: string(entry[10:end]), meta: entry[end:]}, true
}

// label returns the encoded label: length of the name (2) ‖ name ‖ entry. The label precedes the session's first
// record. If the pages with session names are lost, the label shows which session the records belong to.
func (s session) label() []byte {
	return append(append(binary.BigEndian.AppendUint16(nil, uint16(len(s.name))), s.name...), s.entry()...)
}

// decodeLabel returns the name in a label and the offset of the entry.
func decodeLabel(label []byte) (name string, at int, ok bool) {
	if len(label) < 2 || len(label) < 2+int(binary.BigEndian.Uint16(label)) {
		return "", 0, false
	}
	at = 2 + int(binary.BigEndian.Uint16(label))
	return string(label[2:at]), at, true
}

// encodeHead returns fields ‖ length of the creation id (2) ‖ creation id ‖ counts.
func (s session) encodeHead() []byte {
	out, _ := binary.Append(make([]byte, 0, 128), binary.BigEndian, s.head.headFields) // cannot fail, because the fields have a fixed size
	out = append(binary.BigEndian.AppendUint16(out, uint16(len(s.creation))), s.creation...)
	return append(out, s.head.counts...)
}

// decodeHead decodes a head. It returns a session without its meta.
func decodeHead(name string, value []byte) (s session, ok bool) {
	var h head
	n, err := binary.Decode(value, binary.BigEndian, &h.headFields)
	if err != nil || len(value) < n+2 || len(value) < n+2+int(binary.BigEndian.Uint16(value[n:])) {
		return s, false
	}
	from, end := n+2, n+2+int(binary.BigEndian.Uint16(value[n:]))
	h.counts = bytes.Clone(value[end:])
	return session{name: name, number: number(h.Number), creation: string(value[from:end]), head: &h}, true
}

func (s session) putHead(tx *bbolt.Tx) error {
	name := []byte(s.name)
	return tx.Bucket(bucketHeads).Put(name, seal(kindHead, name, s.encodeHead()))
}

func (s session) putEntry(tx *bbolt.Tx) error {
	name, key := []byte(s.name), s.key(0)
	return errors.Join(tx.Bucket(bucketSessions).Put(name, seal(kindEntry, name, s.entry())),
		tx.Bucket(bucketRecords).Put(key, seal(kindLabel, key, s.label())))
}

// find returns a session without its meta. It fails with ErrNotFound only if the name is in neither of its two
// buckets.
func find(tx *bbolt.Tx, name string) (session, error) {
	row := tx.Bucket(bucketHeads).Get([]byte(name))
	if value, ok := unseal(kindHead, []byte(name), row); ok {
		if s, ok := decodeHead(name, value); ok {
			return s, nil
		}
	}
	return decodeSession(name, tx.Bucket(bucketSessions).Get([]byte(name)), row)
}

// decodeSession returns a session with its meta, from the rows of its entry and its head. An argument is nil if its
// row is missing. If only the head is damaged, decodeSession returns the session together with the error.
func decodeSession(name string, entry, row []byte) (s session, err error) {
	switch {
	case entry == nil && row == nil:
		return s, backend.ErrNotFound
	case entry == nil:
		return s, fmt.Errorf("%w: session %q has a head but no entry", backend.ErrDamaged, displayName(name))
	}
	value, ok := unseal(kindEntry, []byte(name), entry)
	if ok {
		s, ok = decodeEntry(value)
		s.name = name
	}
	if !ok {
		return session{}, fmt.Errorf("%w: the checksum of the entry of session %q is wrong", backend.ErrDamaged, displayName(name))
	}
	value, ok = unseal(kindHead, []byte(name), row)
	h, headOK := decodeHead(name, value)
	switch {
	case !ok || !headOK:
		return s, fmt.Errorf("%w: session %q, number %x, has no head, or its checksum is wrong", backend.ErrDamaged, displayName(name), s.number)
	case h.id() != s.id() || h.creation != s.creation:
		return session{}, fmt.Errorf("%w: session %q has the numbers %d and %d, and the creation ids %q and %q",
			backend.ErrDamaged, displayName(name), s.id(), h.id(), s.creation, h.creation)
	}
	s.head = h.head
	return s, nil
}

// readMeta reads the session's meta, unless it was read before.
func (s *session) readMeta(tx *bbolt.Tx) error {
	if s.meta != nil {
		return nil
	}
	name := []byte(s.name)
	full, err := decodeSession(s.name, tx.Bucket(bucketSessions).Get(name), tx.Bucket(bucketHeads).Get(name))
	s.meta = full.meta
	return err
}

// findCreated returns the session with this name and creation id.
func findCreated(tx *bbolt.Tx, name, creation string) (session, error) {
	s, err := find(tx, name)
	if err == nil && s.creation != creation {
		err = backend.ErrNotFound
	}
	return s, err
}

// findUnmoved returns the session that a batch writes to. If the last seq or the token of the session differs from
// the arguments, findUnmoved fails with [backend.ErrMoved].
func findUnmoved(tx *bbolt.Tx, name, creation string, last uint64, token backend.Token) (session, error) {
	s, err := findCreated(tx, name, creation)
	switch {
	case err != nil:
	case s.head.Last != last || s.head.Token != token:
		err = backend.ErrMoved
	}
	return s, err
}

// nextNumber returns the number of the next session. The last assigned number is stored in two places, which must
// agree, and no row may have the new number.
func nextNumber(tx *bbolt.Tx) ([]byte, error) {
	last := tx.Bucket(bucketSessions).Sequence()
	if stored := tx.Bucket(bucketMeta).Get(keyNumbers); !bytes.Equal(stored, number(last)) {
		return nil, fmt.Errorf("%w: the two copies of the last session number differ: %d and %x", backend.ErrDamaged, last, stored)
	}
	next := number(last + 1)
	for _, bucket := range rowBuckets {
		for k := range rows(tx.Bucket(bucket), next) {
			return nil, fmt.Errorf("%w: bucket %q has key %x, whose session number is not assigned yet", backend.ErrDamaged, bucket, k)
		}
	}
	return next, nil
}

// assignNumber stores the number that nextNumber returned as the last assigned number.
func assignNumber(tx *bbolt.Tx) error {
	n, err := tx.Bucket(bucketSessions).NextSequence()
	if err != nil {
		return err
	}
	return tx.Bucket(bucketMeta).Put(keyNumbers, number(n))
}

// setVersion writes the file's version and the last assigned session number.
func setVersion(tx *bbolt.Tx, numbers uint64) error {
	meta := tx.Bucket(bucketMeta)
	return errors.Join(meta.Put(keyVersion, number(FileVersion)), meta.Put(keyNumbers, number(numbers)), putTxid(tx))
}

// putTxid writes the transaction's number next to the roots of the buckets. If both meta pages are lost,
// salvage uses the number to find the newest root.
func putTxid(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).SetSequence(uint64(tx.ID())) }

// adjacentKeys returns the last key less than the given key, and the first key that is equal or greater.
func adjacentKeys(c *bbolt.Cursor, key []byte) (before, next []byte) {
	if next, _ = c.Seek(key); next == nil {
		before, _ = c.Last()
	} else {
		before, _ = c.Prev()
	}
	return before, next
}

// nextKey returns the key after the given key. The cursor must be at the given key or before it. The next key may be
// in a page that has only rows of other sessions. If such a page is damaged, nextKey returns nil, because the damage
// does not affect this session.
func nextKey(c *bbolt.Cursor, key []byte) (next []byte) {
	defer func() {
		if p := recover(); p != nil {
			_ = damageReason(p)
			next = nil
		}
	}()
	if next, _ = c.Seek(key); bytes.Equal(next, key) {
		next, _ = c.Next()
	}
	return next
}

// headOf returns the session's head as a [backend.Head]. It fails if the log does not end with the record that the
// head names. The head or the last row is then damaged or from an earlier commit.
func headOf(tx *bbolt.Tx, s session) (backend.Head, error) {
	h := backend.Head{Creation: s.creation, Meta: s.meta, Last: s.head.Last, Chain: s.head.Chain, Edition: s.head.Edition, Token: s.head.Token, Counts: s.head.counts}
	// Only keys are read, because the last record may be long.
	c := tx.Bucket(bucketRecords).Cursor()
	if k, _ := c.Seek(s.key(h.Last)); h.Last > 0 && s.seqOf(k) != h.Last {
		return backend.Head{}, fmt.Errorf("%w: the last record, %d, is missing", backend.ErrDamaged, h.Last)
	}
	if next := nextKey(c, s.key(h.Last)); bytes.HasPrefix(next, s.number) {
		return backend.Head{}, fmt.Errorf("%w: key %x follows the last record, %d", backend.ErrDamaged, next, h.Last)
	}
	return h, nil
}

// Fetch implements [backend.Backend].
func (b *Backend) Fetch(ctx context.Context, q backend.Query) (fetched backend.Fetched, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		if q.Session != "" {
			s, err := find(tx, q.Session)
			if err != nil {
				return err
			}
			cached := q.UpTo == 0 && q.Creation != "" && s.creation == q.Creation
			if !cached && !q.NoMeta {
				if err := s.readMeta(tx); err != nil {
					return err
				}
			}
			if fetched.Head, err = headOf(tx, s); err != nil {
				return err
			}
			if cached || q.NoMeta {
				fetched.Meta = nil
			}
			if q.UpTo != 0 {
				// Snapshots are optional, so an unreadable page of the snapshot must not make Fetch fail.
				var stored backend.Snapshot
				if err := b.handle.guard(func() error { stored = s.readSnapshot(tx); return nil }); err != nil {
					stored = backend.Snapshot{Err: err}
				}
				if stored.Seq <= q.UpTo {
					fetched.Snapshot = stored
				}
			}
			if _, maxBytes := q.Limits(); cached || q.UpTo != 0 {
				// If a page is unreadable, Fetch returns the records before it.
				err := b.handle.guard(func() error {
					for r := range s.records(tx, q.Seqs(fetched.Last, fetched.Snapshot), maxBytes) {
						fetched.Records = append(fetched.Records, r)
					}
					return nil
				})
				if err != nil && cached {
					return err
				}
			}
		}
		for i, prefix := range q.Shared {
			var version backend.Token
			if b.handle.guard(func() error { version = scopeVersion(tx, prefix); return nil }) != nil {
				version = 0
			}
			var values []backend.Value
			if !q.HasKnown(i, version) {
				values = sharedWith(tx, prefix)
			}
			fetched.Shared, fetched.Versions = append(fetched.Shared, values), append(fetched.Versions, version)
		}
		return nil
	})
	return fetched, err
}

// viewSession calls f with the session that has this name and creation id.
func (b *Backend) viewSession(ctx context.Context, name, creation string, f func(tx *bbolt.Tx, s session) error) error {
	return b.view(ctx, func(tx *bbolt.Tx) error {
		s, err := findCreated(tx, name, creation)
		if err != nil {
			return err
		}
		return f(tx, s)
	})
}

// Read implements [backend.Backend].
func (b *Backend) Read(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) (out []backend.Record, err error) {
	err = b.viewSession(ctx, name, creation, func(tx *bbolt.Tx, s session) error {
		// If a page is unreadable, the records before it are still returned.
		err := b.handle.guard(func() error {
			for r := range s.records(tx, seqs, maxBytes) {
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

// records yields the records with the given seqs, which must ascend. It stops at the first missing record. It also
// stops before their length exceeds maxBytes, but yields at least one.
func (s session) records(tx *bbolt.Tx, seqs []uint64, maxBytes int) iter.Seq[backend.Record] {
	return func(yield func(backend.Record) bool) {
		c := tx.Bucket(bucketRecords).Cursor()
		n, size, previous := 0, 0, uint64(math.MaxUint64)
		for _, seq := range seqs {
			// The next step of the cursor after the last record may reach a page of another session.
			if seq == 0 || seq > s.head.Last {
				return
			}
			var data []byte
			ok, exists := false, false
			if seq == previous+1 {
				if k, row := c.Next(); s.seqOf(k) == seq {
					data, ok = unseal(kindRecord, k, row)
				}
			}
			if !ok {
				data, ok, exists = get(c, kindRecord, s.key(seq))
			}
			r := backend.Record{Seq: seq, Data: bytes.Clone(data)}
			if exists && !ok {
				r.Err = fmt.Errorf("%w: the checksum of record %d is wrong", backend.ErrDamaged, seq)
			}
			if size += len(data); !ok && !exists || n > 0 && size > maxBytes {
				return
			}
			if !yield(r) {
				return
			}
			n, previous = n+1, seq
		}
	}
}

// Lookup implements [backend.Backend].
func (b *Backend) Lookup(ctx context.Context, name, creation string, ids []string) (seqs []uint64, err error) {
	hashes := hashIDs([]backend.Record{{IDs: ids}})
	err = b.viewSession(ctx, name, creation, func(tx *bbolt.Tx, s session) (err error) {
		seqs, err = b.ids.lookup(tx, s, hashes)
		return err
	})
	return seqs, err
}

// readSnapshot returns the session's snapshot. If the snapshot is damaged, Err is set.
func (s session) readSnapshot(tx *bbolt.Tx) backend.Snapshot {
	row := tx.Bucket(bucketSnapshots).Get(s.number)
	if row == nil {
		return backend.Snapshot{}
	}
	if value, ok := unseal(kindSnapshot, s.number, row); ok {
		if stored, ok := decodeSnapshot(value); ok {
			return stored
		}
	}
	return backend.Snapshot{Err: fmt.Errorf("%w: the checksum of the snapshot of session %q is wrong", backend.ErrDamaged, displayName(s.name))}
}

// snapshotFields are the first bytes of an encoded snapshot. The spans (two seqs of eight bytes each) and the data
// follow.
type snapshotFields struct {
	Seq   uint64
	Chain backend.Chain
	Spans uint32 // number of spans
}

func encodeSnapshot(s backend.Snapshot) []byte {
	out, _ := binary.Append(nil, binary.BigEndian, snapshotFields{s.Seq, s.Chain, uint32(len(s.Spans))})
	out, _ = binary.Append(out, binary.BigEndian, s.Spans)
	return append(out, s.Data...)
}

func decodeSnapshot(value []byte) (s backend.Snapshot, ok bool) {
	var f snapshotFields
	n, err := binary.Decode(value, binary.BigEndian, &f)
	if err != nil || int(f.Spans) > len(value[n:])/16 {
		return s, false
	}
	spans := make([]backend.Span, f.Spans)
	m, err := binary.Decode(value[n:], binary.BigEndian, spans)
	return backend.Snapshot{Seq: f.Seq, Chain: f.Chain, Spans: spans, Data: append([]byte{}, value[n+m:]...)}, err == nil
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) (out []backend.Listed, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		for _, n := range namesInEither(tx.Bucket(bucketSessions), tx.Bucket(bucketHeads), prefix, after, limit) {
			l := backend.Listed{Session: n.name}
			// An unreadable page of one session must not prevent other sessions from being listed.
			l.Err = b.handle.guard(func() (err error) {
				value, _ := unseal(kindHead, []byte(n.name), n.rows[1])
				s, ok := decodeHead(n.name, value)
				if !ok || n.rows[0] == nil {
					s, err = decodeSession(n.name, n.rows[0], n.rows[1])
					s.meta = nil
				}
				if err == nil {
					l.Head, err = headOf(tx, s)
				}
				return err
			})
			out = append(out, l)
		}
		return nil
	})
	return out, err
}
