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
	src      *source
	decoders Decoders
	out      *Scan

	pageSize int64
	ranks    []Rank

	// In the keys of the maps, the rank and the offset are 0. So the copies of a row have one entry, with the
	// highest rank.
	entries map[ScannedEntry]ScannedEntry
	heads   map[ScannedHead]Rank
	values  map[ScannedValue]ScannedValue
	names   map[string]bool
}

func (s *scanner) scanRows(ctx context.Context) error {
	for at := int64(0); at < s.src.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		end := min(at+64<<10, s.src.size)
		// The magic bytes of a row may begin with the last byte of the piece.
		piece, _ := s.src.bytes(at, int(min(end+1, s.src.size)-at))
		i := bytes.Index(piece, rowMagic)
		if i < 0 {
			at = end
			continue
		}
		at += int64(i)
		at += max(s.scanRow(at), int64(len(rowMagic)))
	}
	return nil
}

// scanRow adds the row whose header is at an offset. It returns the length from the offset to the end of the row, or 0
// if there is no valid row.
func (s *scanner) scanRow(at int64) int64 {
	head, _ := s.src.bytes(at, rowHeaderBytes)
	kind, keyBytes, valueBytes, ok := decodeRowHeader(head)
	from, size := at-int64(keyBytes), keyBytes+rowHeaderBytes+valueBytes
	if !ok || bytes.IndexByte(kinds, byte(kind)) < 0 || valueBytes > s.decoders.MaxBytes+backend.MaxNameBytes || from < 0 || at+int64(size-keyBytes) > s.src.size || !s.src.spend(size) {
		return 0
	}
	rank := s.rankAt(at)
	data, _ := s.src.bytes(from, size) // valid until the next call of s.src.bytes
	key, row := data[:keyBytes], data[keyBytes:]
	value, ok := unseal(kind, key, row)
	switch {
	case kind == kindRecord && !s.addRecord(key, row, at, rank, ok), kind != kindRecord && !ok:
		return 0
	case kind == kindUnlinked && keyBytes == 8:
		n := binary.BigEndian.Uint64(key)
		s.out.unlinked[n] = max(s.out.unlinked[n], rank)
	case kind == kindName && rank > Free:
		s.names[string(key)] = true
	case kind == kindHead:
		if of, ok := decodeHead(string(key), value); ok {
			found := ScannedHead{Number: of.id(), Name: of.name, Last: of.head.Last, Chain: of.head.Chain}
			s.heads[found] = max(s.heads[found], rank)
		}
	case kind == kindEntry:
		s.addEntry(string(key), value, at+rowHeaderBytes, rank)
	case kind == kindLabel:
		if name, begin, ok := decodeLabel(value); ok {
			s.addEntry(name, value[begin:], at+rowHeaderBytes+int64(begin), rank)
		}
	case kind == kindShared && s.decoders.IsValue(value):
		id := ScannedValue{Name: string(key), sum: binary.BigEndian.Uint32(row[9:]), size: len(value)}
		if old, exists := s.values[id]; !exists || old.Rank < rank {
			s.values[id] = ScannedValue{id.Name, rank, id.sum, at + rowHeaderBytes, id.size}
		}
	}
	return int64(rowHeaderBytes + valueBytes)
}

// rankAt returns the rank of the page at an offset. If the header of the page has the id of another page, the page
// was moved. The moved page gets the rank of that other page, but at most Unknown.
func (s *scanner) rankAt(at int64) Rank {
	page := at / s.pageSize
	if page >= int64(len(s.ranks)) {
		return Unknown
	}
	if head, ok := s.src.bytes(page*s.pageSize, pageHeaderBytes); ok && binary.NativeEndian.Uint16(head[8:]) == leafFlag {
		if id := binary.NativeEndian.Uint64(head); id > 1 && id != uint64(page) && id < uint64(len(s.ranks)) {
			return min(s.ranks[id], Unknown)
		}
	}
	return s.ranks[page]
}

// addEntry adds a session's entry. The entry was found in bucketSessions or in a label.
func (s *scanner) addEntry(name string, entry []byte, at int64, rank Rank) {
	of, ok := decodeEntry(entry)
	if !ok {
		return
	}
	id := ScannedEntry{Number: of.id(), Name: name}
	if old, exists := s.entries[id]; !exists || old.Rank < rank {
		s.entries[id] = ScannedEntry{id.Number, name, rank, at, len(entry)}
	}
}

// addRecord adds the record in a row. The argument sumValid reports whether the checksum of the row is valid. If it
// is not, the checksum in the encoded record may still be valid. addRecord returns false if the row has no valid
// record.
func (s *scanner) addRecord(key, row []byte, at int64, rank Rank, sumValid bool) bool {
	encoded := row[rowHeaderBytes:]
	seq, ok := s.decoders.RecordSeq(encoded)
	if !ok || len(key) != 16 || seq != binary.BigEndian.Uint64(key[8:]) || seq == 0 {
		return false
	}
	s.out.Records = append(s.out.Records, ScannedRecord{
		Number: binary.BigEndian.Uint64(key), Seq: seq, At: at + rowHeaderBytes, Size: uint32(len(encoded)), Sum: binary.LittleEndian.Uint32(encoded[1:]), Rank: rank, SumValid: sumValid,
	})
	return true
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
