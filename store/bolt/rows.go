package bolt

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	bbolt "go.etcd.io/bbolt"
)

// A row, the value that bbolt stores for a key, begins with a header. Because bbolt stores the key directly before
// the row, salvage can find a row anywhere in the file by its header.
//
//	┌───────┬──────┬───────────────┬─────────────────┬──────────┬───────┐
//	│ e7 1d │ kind │ key's length  │ value's length  │ checksum │ value │
//	└───────┴──────┴───────────────┴─────────────────┴──────────┴───────┘
//	 0       2      3               5                 9          13
//
// The checksum covers the key, the value and the kind.
const rowHeaderBytes = 13

var rowMagic = []byte{0xe7, 0x1d}

// kind is the bucket and the purpose of a row. It prevents salvage from mistaking a row for a row of another bucket.
type kind byte

const (
	kindEntry    kind = 'e' // entry of a session
	kindHead     kind = 'h' // head of a session
	kindLabel    kind = 'l' // label of a session, next to its records
	kindRecord   kind = 'r'
	kindIDs      kind = 'i' // ids of a record, at the end of the record's row
	kindRun      kind = 'x' // ids of a run of records
	kindSnapshot kind = 's'
	kindShared   kind = 'v' // a shared value
	kindName     kind = 'n' // the name of a shared value
	kindScope    kind = 'o' // version of a scope of shared values
	kindUnlinked kind = 'u'
	kindFamily   kind = 'f' // either row of bucketFamilies
)

var kinds = []byte("ehlrxsvnouf") // all kinds except kindIDs, which is only a part of a record's row

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rowSum returns the checksum of a row.
func rowSum(kind kind, key, value []byte) uint32 {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return crc32.Update(sum, castagnoli, []byte{byte(kind)})
}

// seal returns the row for a key and a value.
func seal(kind kind, key, value []byte) []byte {
	return appendSealed(make([]byte, 0, rowHeaderBytes+len(value)), kind, key, value)
}

func appendSealed(dst []byte, kind kind, key, value []byte) []byte {
	dst = append(append(dst, rowMagic...), byte(kind))
	dst = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(dst, uint16(len(key))), uint32(len(value)))
	return append(binary.BigEndian.AppendUint32(dst, rowSum(kind, key, value)), value...)
}

// decodeRowHeader decodes the header of a row. The argument row may be only the beginning of the row.
func decodeRowHeader(row []byte) (rowKind kind, keyBytes, valueBytes int, ok bool) {
	if len(row) < rowHeaderBytes || !bytes.HasPrefix(row, rowMagic) || row[5] > math.MaxInt8 {
		return 0, 0, 0, false
	}
	return kind(row[2]), int(binary.BigEndian.Uint16(row[3:])), int(binary.BigEndian.Uint32(row[5:])), true
}

// onRow, if not nil, is called with the length of each row that is read. It is not called for rows that a write
// copies together with their page. Tests set onRow.
var onRow func(bytes int)

// unseal returns the value in a row, without copying it. The result ok reports whether the header and the checksum
// match kind, key and value.
func unseal(kind kind, key, row []byte) (value []byte, ok bool) {
	if onRow != nil {
		onRow(len(row))
	}
	if value, ok = openRow(kind, key, row); !ok {
		return nil, false
	}
	return value, true
}

// openRow is unseal without the call of onRow. If ok is false, the value is nil or has a wrong checksum.
func openRow(kind kind, key, row []byte) (value []byte, ok bool) {
	rowKind, keyBytes, valueBytes, ok := decodeRowHeader(row)
	if !ok || rowKind != kind || keyBytes != len(key) || valueBytes > len(row)-rowHeaderBytes || kind != kindRecord && valueBytes != len(row)-rowHeaderBytes {
		return nil, false
	}
	value = row[rowHeaderBytes : rowHeaderBytes+valueBytes]
	return value, binary.BigEndian.Uint32(row[9:]) == rowSum(kind, key, value)
}

// isSealed reports whether a row has a valid checksum, whatever the kind of the row.
func isSealed(key, row []byte) bool {
	of, _, _, _ := decodeRowHeader(row)
	_, ok := openRow(of, key, row)
	if ok && of == kindRecord {
		_, ok = recordIDs(key, row)
	}
	return ok
}

// The row of a record ends with the record's ids: the hashes (16 bytes each), their number (4), and a checksum of
// the ids (4). Because the ids have their own checksum, they stay readable if the record is damaged.
const idsTrailerBytes = 4 + 4

func sealRecord(key, data []byte, ids []idHash) []byte {
	row := appendSealed(make([]byte, 0, rowHeaderBytes+len(data)+len(ids)*len(idHash{})+idsTrailerBytes), kindRecord, key, data)
	from := len(row)
	for _, id := range ids {
		row = append(row, id[:]...)
	}
	row = binary.BigEndian.AppendUint32(row, uint32(len(ids)))
	return binary.BigEndian.AppendUint32(row, rowSum(kindIDs, key, row[from:]))
}

// recordIDs returns the hashes of a record's ids. The result ok reports whether the checksum of the hashes is valid.
func recordIDs(key, row []byte) (hashes []idHash, ok bool) {
	if len(row) < rowHeaderBytes+idsTrailerBytes {
		return nil, false
	}
	end := len(row) - idsTrailerBytes
	n := int(binary.BigEndian.Uint32(row[end:]))
	if n > (end-rowHeaderBytes)/len(idHash{}) {
		return nil, false
	}
	ids := row[end-n*len(idHash{}) : end+4]
	if rowSum(kindIDs, key, ids) != binary.BigEndian.Uint32(row[end+4:]) {
		return nil, false
	}
	for ; len(ids) > 4; ids = ids[len(idHash{}):] {
		hashes = append(hashes, idHash(ids))
	}
	return hashes, true
}

// get returns the value of a key. The result exists reports whether the key exists, even if its row is damaged.
func get(c *bbolt.Cursor, kind kind, key []byte) (value []byte, ok, exists bool) {
	k, row := c.Seek(key)
	if !bytes.Equal(k, key) {
		return nil, false, false
	}
	value, ok = unseal(kind, key, row)
	return value, ok, true
}

// rows yields the rows of a bucket whose keys begin with prefix. A nil bucket has no rows.
func rows(bucket *bbolt.Bucket, prefix []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		if bucket == nil {
			return
		}
		c := bucket.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix) && yield(k, v); k, v = c.Next() {
		}
	}
}

// nameRows is a name that should be in two buckets, and its row in each bucket, or nil.
type nameRows struct {
	name string
	rows [2][]byte
}

// namesInEither returns, in order, the names that begin with prefix and are greater than after. It returns at most
// limit names. Each name should be in both buckets. A name that is missing or out of order in one bucket is
// included.
func namesInEither(first, second *bbolt.Bucket, prefix, after string, limit int) []nameRows {
	found := map[string][2][]byte{}
	for i, bucket := range []*bbolt.Bucket{first, second} {
		c, n := bucket.Cursor(), 0
		for k, row := c.Seek([]byte(max(prefix, after))); k != nil && n < limit; k, row = c.Next() {
			name := string(k)
			if name < prefix || name <= after && after != "" {
				continue
			}
			if !strings.HasPrefix(name, prefix) {
				break
			}
			if both := found[name]; both[i] == nil {
				both[i] = row
				found[name] = both
				n++
			}
		}
	}
	out := make([]nameRows, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, nameRows{name, found[name]})
	}
	return out[:min(max(limit, 0), len(out))]
}
