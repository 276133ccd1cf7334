package bolt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/store/backend"
)

type entryID struct {
	number uint64
	name   string
}

type headID struct {
	entryID
	last  uint64
	chain backend.Chain
}

type valueID struct {
	name string
	sum  uint32
	size int
}

type scanner struct {
	src   *source
	forms Forms
	out   *Scan
	ranks ranks
	ids   func(number uint64, hash [16]byte, seq uint64) // if set, nothing else is looked for

	entries map[entryID]ScannedEntry
	heads   map[headID]ScannedHead
	values  map[valueID]ScannedValue
	names   map[string]bool
}

// Pages have 4 KiB or a multiple of that, so each begins at a multiple of 4 KiB, whatever
// their size is. What no page begins with does no harm.
const blockBytes = 4 << 10

// A page of two entries or more has no room for so many elements.
const maxElements = 64 << 10 / elementBytes

// tables reads what tables of elements lead to.
func (s *scanner) tables(ctx context.Context) error {
	for at := int64(0); at < s.src.size; at += blockBytes {
		if at%(1<<20) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		s.table(at, s.src.size, false)
	}
	return nil
}

// table reads the table of elements that may stand behind a page's header at a place. How
// many there are the header says, and so does the first one, which says where they end:
// neither is believed.
func (s *scanner) table(at, end int64, inline bool) {
	const least = pageHeaderBytes + elementBytes
	head, ok := s.src.bytes(at, least)
	if !ok || at+least > end {
		return
	}
	count := 0
	if binary.NativeEndian.Uint16(head[8:]) == leafFlag {
		count = int(binary.NativeEndian.Uint16(head[10:]))
	}
	if first := binary.NativeEndian.Uint32(head[pageHeaderBytes+4:]); first%elementBytes == 0 && first/elementBytes <= maxElements {
		count = max(count, int(first/elementBytes))
	}
	count = int(min(int64(min(count, maxElements)), (end-at-pageHeaderBytes)/elementBytes))
	if count == 0 || !s.src.spend(at, count*elementBytes) {
		return
	}
	rank := s.ranks.of(at)
	if !inline {
		rank = s.ranks.said(at, binary.NativeEndian.Uint64(head))
	}
	table, ok := s.src.bytes(at+pageHeaderBytes, count*elementBytes)
	if !ok {
		return
	}
	table = bytes.Clone(table)
	for i := range count {
		e := table[i*elementBytes:]
		flags, pos := binary.NativeEndian.Uint32(e), int64(binary.NativeEndian.Uint32(e[4:]))
		keyBytes, valueBytes := int64(binary.NativeEndian.Uint32(e[8:])), int64(binary.NativeEndian.Uint32(e[12:]))
		key := at + pageHeaderBytes + int64(i)*elementBytes + pos
		if pos < elementBytes || keyBytes == 0 || keyBytes > backend.MaxNameBytes || valueBytes > int64(s.forms.MaxBytes)+backend.MaxNameBytes ||
			key+keyBytes+valueBytes > end {
			continue
		}
		if !inline && valueBytes >= bucketHeaderBytes+least && s.isBucket(flags, key, keyBytes) {
			s.table(key+keyBytes+bucketHeaderBytes, key+keyBytes+valueBytes, true)
			continue
		}
		s.row(key, int(keyBytes), int(valueBytes), rank)
	}
}

var ownBuckets = slices.Concat(buckets, [][]byte{bucketUnlinked})

// isBucket reports whether an element is a bucket, of which the flags or the name may be damaged.
func (s *scanner) isBucket(flags uint32, at, size int64) bool {
	if flags == bucketFlag {
		return true
	}
	if size > 16 {
		return false
	}
	name, ok := s.src.bytes(at, int(size))
	return ok && slices.ContainsFunc(ownBuckets, func(own []byte) bool { return bytes.Equal(own, name) })
}

// row takes what a key and its value are, by their form and checksum.
func (s *scanner) row(at int64, keyBytes, valueBytes int, rank Rank) {
	if s.ids != nil {
		if keyBytes != 8+idHashBytes || valueBytes != 8 {
			return
		}
		if both, ok := s.src.bytes(at, keyBytes+valueBytes); ok {
			s.ids(binary.BigEndian.Uint64(both), [idHashBytes]byte(both[8:]), binary.BigEndian.Uint64(both[keyBytes:]))
		}
		return
	}
	if keyBytes == recordKey && valueBytes > recordLeast && s.record(at+recordKey, valueBytes, rank) {
		return
	}
	switch {
	case keyBytes == 8+idHashBytes && valueBytes == 8: // of the index of ids
		return
	case !s.src.spend(at, keyBytes+valueBytes):
		return
	}
	both, ok := s.src.bytes(at, keyBytes+valueBytes)
	if !ok {
		return
	}
	key, value := both[:keyBytes], both[keyBytes:]
	if keyBytes == 8 && wholeUnlinked(key, value) {
		n := binary.BigEndian.Uint64(key)
		s.out.unlinked[n] = max(s.out.unlinked[n], rank)
		return
	}
	if valueBytes == 4 && rank > Free && bytes.Equal(value, nameMark(key)) {
		s.names[string(key)] = true
		return
	}
	if valueBytes == headBytes {
		if h, err := decodeHead(string(key), value); err == nil {
			found := ScannedHead{binary.BigEndian.Uint64(h.number), string(key), h.last, h.chain, rank}
			id := headID{entryID{found.Number, found.Name}, found.Last, found.Chain}
			if old, there := s.heads[id]; !there || old.Rank < rank {
				s.heads[id] = found
			}
			return
		}
	}
	if len(value) >= entryCreation && entrySumOf(string(key), value) == binary.BigEndian.Uint32(value[entryNumber:]) {
		id := entryID{binary.BigEndian.Uint64(value), string(key)}
		if old, there := s.entries[id]; !there || old.Rank < rank {
			s.entries[id] = ScannedEntry{id.number, id.name, rank, at + int64(keyBytes), valueBytes}
		}
		return
	}
	if valueBytes <= 4 || binary.BigEndian.Uint32(value) != sumOf(key, value[4:]) || !s.forms.Value(value[4:]) {
		return
	}
	v := ScannedValue{Name: string(key), Rank: rank, sum: binary.BigEndian.Uint32(value), at: at + int64(keyBytes) + 4, size: valueBytes - 4}
	id := valueID{v.Name, v.sum, v.size}
	if old, there := s.values[id]; !there || old.Rank < rank {
		s.values[id] = v
	}
}

// recordLeast is the length of a record's checksum and version.
const recordLeast = 5

// record takes the record whose form stands at a place, behind its key.
func (s *scanner) record(at int64, size int, rank Rank) bool {
	if size > s.forms.MaxBytes || !s.src.spend(at-recordKey, recordKey+size) {
		return false
	}
	both, ok := s.src.bytes(at-recordKey, recordKey+size)
	if !ok {
		return false
	}
	seq, ok := s.forms.Record(both[recordKey:])
	if !ok || seq != binary.BigEndian.Uint64(both[8:]) || seq == 0 {
		return false
	}
	s.out.Records = append(s.out.Records, ScannedRecord{
		Number: binary.BigEndian.Uint64(both), Seq: seq, At: at, Size: uint32(size), Sum: binary.LittleEndian.Uint32(both[recordKey+1:]), Rank: rank,
	})
	return true
}

// between looks for records wherever no table has led to one.
func (s *scanner) between(ctx context.Context) error {
	found := s.out.Records
	last := int64(0)
	for _, r := range found {
		if err := s.stretch(ctx, last, r.At-recordKey); err != nil {
			return err
		}
		last = max(last, r.At+int64(r.Size))
	}
	return s.stretch(ctx, last, s.src.size)
}

const (
	recordKey = 16 // bytes of the key before a record's form
	findBytes = 16 // how many of a form's first bytes it takes at most to find it
)

// stretch looks for records between two places.
func (s *scanner) stretch(ctx context.Context, at, end int64) error {
	const step = 64 << 10
	for at < end {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		piece, ok := s.src.bytes(at, int(min(step, end-at)))
		if !ok {
			return nil
		}
		next := at + int64(len(piece))
		if end > next {
			next -= recordKey + findBytes // what stands across the end is met in the next piece
		}
		for form := recordKey; form < len(piece); form++ {
			n := s.forms.Find(piece[form:])
			if n < 0 {
				break
			}
			form += n
			if size := s.candidate(at+int64(form), end); size > 0 {
				next = at + int64(form) + size
				break
			}
			piece, _ = s.src.bytes(at, len(piece)) // the candidate may have taken its place
		}
		at = next
	}
	return nil
}

// candidate takes the record that may stand at a place, and returns its length.
func (s *scanner) candidate(at, end int64) int64 {
	for n := 64; ; {
		n = int(min(int64(n), end-at))
		if !s.src.spend(at, n) {
			return 0
		}
		form, ok := s.src.bytes(at, n)
		if !ok {
			return 0
		}
		size, whole := s.forms.Length(form)
		switch {
		case size == 0 || int64(size) > end-at || size > s.forms.MaxBytes:
			return 0
		case !whole:
			n = max(size, 2*n)
			continue
		case !s.record(at, size, s.ranks.of(at)):
			return 0
		}
		return int64(size)
	}
}

func (s *scanner) finish() {
	byNumber := func(a, b uint64, rankA, rankB Rank) int {
		if c := cmp.Compare(a, b); c != 0 {
			return c
		}
		return cmp.Compare(rankB, rankA)
	}
	out := s.out
	slices.SortFunc(out.Records, func(a, b ScannedRecord) int {
		if c := cmp.Compare(a.Number, b.Number); c != 0 {
			return c
		}
		if c := byNumber(a.Seq, b.Seq, a.Rank, b.Rank); c != 0 {
			return c
		}
		return cmp.Compare(a.At, b.At)
	})
	out.Entries = slices.SortedFunc(maps.Values(s.entries), func(a, b ScannedEntry) int {
		if c := byNumber(a.Number, b.Number, a.Rank, b.Rank); c != 0 {
			return c
		}
		return cmp.Compare(a.at, b.at)
	})
	out.Heads = slices.SortedFunc(maps.Values(s.heads), func(a, b ScannedHead) int {
		if c := byNumber(a.Number, b.Number, a.Rank, b.Rank); c != 0 {
			return c
		}
		if c := cmp.Compare(b.Last, a.Last); c != 0 {
			return c
		}
		if c := cmp.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return cmp.Compare(a.Chain.Sum, b.Chain.Sum)
	})
	out.Values = slices.SortedFunc(maps.Values(s.values), func(a, b ScannedValue) int {
		if c := cmp.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		if c := cmp.Compare(b.Rank, a.Rank); c != 0 {
			return c
		}
		return cmp.Compare(b.at, a.at)
	})
	out.ValueNames = slices.Sorted(maps.Keys(s.names))
	out.Unread = s.src.unread
}
