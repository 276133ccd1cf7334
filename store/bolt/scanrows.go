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

type scanner struct {
	src   *source
	forms Forms
	out   *Scan
	ranks ranks

	// Each once, by what makes it another one.
	entries map[ScannedEntry]ScannedEntry
	heads   map[ScannedHead]Rank
	values  map[ScannedValue]ScannedValue
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

// isBucket reports whether an element is a bucket, of which the flags or the name may be damaged.
func (s *scanner) isBucket(flags uint32, at, size int64) bool {
	if flags == bucketFlag {
		return true
	}
	if size > 16 {
		return false
	}
	name, ok := s.src.bytes(at, int(size))
	return ok && slices.ContainsFunc(buckets, func(own []byte) bool { return bytes.Equal(own, name) })
}

// row takes what a key and its value are, by their form and checksum.
func (s *scanner) row(at int64, keyBytes, rowBytes int, rank Rank) {
	if keyBytes == recordKey && s.candidate(at+recordBefore, at+int64(keyBytes+rowBytes), rank) > 0 {
		return
	}
	if !s.src.spend(at, keyBytes+rowBytes) {
		return
	}
	both, ok := s.src.bytes(at, keyBytes+rowBytes)
	if !ok {
		return
	}
	key, row := both[:keyBytes], both[keyBytes:]
	kind := kindOf(key, row)
	if kind == 0 {
		return
	}
	value := row[checksumBytes:]
	valueAt := at + int64(keyBytes) + checksumBytes
	switch kind {
	case kindUnlinked:
		if keyBytes == 8 {
			n := binary.BigEndian.Uint64(key)
			s.out.unlinked[n] = max(s.out.unlinked[n], rank)
		}
	case kindName:
		if rank > Free {
			s.names[string(key)] = true
		}
	case kindHead:
		if h, ok := decodeHead(value); ok {
			found := ScannedHead{Number: binary.BigEndian.Uint64(h.number), Name: string(key), Last: h.last, Chain: h.chain}
			s.heads[found] = max(s.heads[found], rank)
		}
	case kindEntry:
		s.entry(string(key), value, valueAt, rank)
	case kindLabel:
		if name, begin, ok := decodeLabel(value); ok {
			s.entry(name, value[begin:], valueAt+int64(begin), rank)
		}
	case kindShared:
		if s.forms.Value(value) {
			id := ScannedValue{Name: string(key), sum: binary.BigEndian.Uint32(row), size: len(value)}
			if old, there := s.values[id]; !there || old.Rank < rank {
				v := id
				v.Rank, v.at = rank, valueAt
				s.values[id] = v
			}
		}
	}
}

// entry takes a session's entry, as its name or its records have it.
func (s *scanner) entry(name string, entry []byte, at int64, rank Rank) {
	of, ok := decodeEntry(entry)
	if !ok {
		return
	}
	id := ScannedEntry{Number: of.id(), Name: name}
	if old, there := s.entries[id]; !there || old.Rank < rank {
		s.entries[id] = ScannedEntry{id.Number, name, rank, at, len(entry)}
	}
}

// record takes the record whose form stands at a place, behind its key and the row's checksum.
func (s *scanner) record(at int64, size int, rank Rank) bool {
	if size > s.forms.MaxBytes || !s.src.spend(at-recordBefore, recordBefore+size) {
		return false
	}
	both, ok := s.src.bytes(at-recordBefore, recordBefore+size)
	if !ok {
		return false
	}
	key, form := both[:recordKey], both[recordBefore:]
	seq, ok := s.forms.Record(form)
	if !ok || seq != binary.BigEndian.Uint64(key[8:]) || seq == 0 {
		return false
	}
	sure := rowSum(kindRecord, key, form) == binary.BigEndian.Uint32(both[recordKey:])
	s.out.Records = append(s.out.Records, ScannedRecord{
		Number: binary.BigEndian.Uint64(key), Seq: seq, At: at, Size: uint32(size), Sum: binary.LittleEndian.Uint32(form[1:]), Rank: rank, Sure: sure,
	})
	return true
}

// between looks for records wherever no table has led to one.
func (s *scanner) between(ctx context.Context) error {
	found := s.out.Records
	last := int64(0)
	for _, r := range found {
		if err := s.stretch(ctx, last, r.At-recordBefore); err != nil {
			return err
		}
		last = max(last, r.At+int64(r.Size))
	}
	return s.stretch(ctx, last, s.src.size)
}

const (
	recordKey    = 16                        // bytes of a record's key
	recordBefore = recordKey + checksumBytes // bytes before a record's form
	findBytes    = 16                        // how many of a form's first bytes it takes at most to find it
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
			next -= recordBefore + findBytes // what stands across the end is met in the next piece
		}
		for form := recordBefore; form < len(piece); form++ {
			n := s.forms.Find(piece[form:])
			if n < 0 {
				break
			}
			form += n
			if size := s.candidate(at+int64(form), end, s.ranks.of(at+int64(form))); size > 0 {
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
func (s *scanner) candidate(at, end int64, rank Rank) int64 {
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
		case !s.record(at, size, rank):
			return 0
		}
		return int64(size)
	}
}

func (s *scanner) finish() {
	out := s.out
	slices.SortFunc(out.Records, func(a, b ScannedRecord) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Seq, b.Seq), cmp.Compare(b.Rank, a.Rank), cmp.Compare(a.At, b.At))
	})
	out.Entries = slices.SortedFunc(maps.Values(s.entries), func(a, b ScannedEntry) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(b.Rank, a.Rank), cmp.Compare(a.at, b.at))
	})
	for h, rank := range s.heads {
		h.Rank = rank
		out.Heads = append(out.Heads, h)
	}
	slices.SortFunc(out.Heads, func(a, b ScannedHead) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(b.Rank, a.Rank), cmp.Compare(b.Last, a.Last),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Chain.Sum, b.Chain.Sum))
	})
	out.Values = slices.SortedFunc(maps.Values(s.values), func(a, b ScannedValue) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Rank, a.Rank), cmp.Compare(b.at, a.at))
	})
	out.ValueNames = slices.Sorted(maps.Keys(s.names))
	out.Unread = s.src.unread
}
