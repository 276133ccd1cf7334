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

// A row begins with a header, by which salvage finds the row anywhere: bbolt stores the key just before it.
//
//	┌───────┬──────┬───────────────┬─────────────────┬──────────┬───────┐
//	│ e7 1d │ kind │ key's length  │ value's length  │ checksum │ value │
//	└───────┴──────┴───────────────┴─────────────────┴──────────┴───────┘
//	 0       2      3               5                 9          13
//
// The checksum is that of key, value and kind.
const rowHeader = 13

var rowMagic = []byte{0xe7, 0x1d}

// kind is a row's bucket and purpose. It keeps a row found by its header from being taken for a row of another bucket.
type kind byte

const (
	kindEntry    kind = 'e' // of a session
	kindHead     kind = 'h' // of a session's log
	kindLabel    kind = 'l' // name and entry of a session, beside its log
	kindRecord   kind = 'r'
	kindIDs      kind = 'i' // of a record, in its row
	kindRun      kind = 'x' // ids of a run of records
	kindSnapshot kind = 's'
	kindShared   kind = 'v' // a shared value
	kindName     kind = 'n' // the name of a shared value
	kindScope    kind = 'o' // the version of a scope of shared values
	kindUnlinked kind = 'u'
	kindFamily   kind = 'f' // either row of bucketFamilies
)

var kinds = []byte("ehlrxsvnouf") // of rows of buckets

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rowSum is the checksum of a row: of its key, its value and its kind.
func rowSum(kind kind, key, value []byte) uint32 {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return crc32.Update(sum, castagnoli, []byte{byte(kind)})
}

// seal returns the row of a key and a value.
func seal(kind kind, key, value []byte) []byte {
	return appendSealed(make([]byte, 0, rowHeader+len(value)), kind, key, value)
}

func appendSealed(dst []byte, kind kind, key, value []byte) []byte {
	dst = append(append(dst, rowMagic...), byte(kind))
	dst = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(dst, uint16(len(key))), uint32(len(value)))
	return append(binary.BigEndian.AppendUint32(dst, rowSum(kind, key, value)), value...)
}

// header decodes a row's header. row may be only the beginning of the row.
func header(row []byte) (of kind, keyBytes, valueBytes int, ok bool) {
	if len(row) < rowHeader || !bytes.HasPrefix(row, rowMagic) || row[5] > math.MaxInt8 {
		return 0, 0, 0, false
	}
	return kind(row[2]), int(binary.BigEndian.Uint16(row[3:])), int(binary.BigEndian.Uint32(row[5:])), true
}

// onRow, if not nil, is called with the length of each row that is read, but not for rows that a write copies with
// their page. Tests set it.
var onRow func(bytes int)

// unseal returns the value in a row, without copying it. ok reports that the header and the checksum fit kind, key and
// value.
func unseal(kind kind, key, row []byte) (value []byte, ok bool) {
	if onRow != nil {
		onRow(len(row))
	}
	if value, ok = openRow(kind, key, row); !ok {
		return nil, false
	}
	return value, true
}

// openRow is unseal for a row that was read already. If not ok, the value has a wrong checksum or is nil.
func openRow(kind kind, key, row []byte) (value []byte, ok bool) {
	is, keyBytes, valueBytes, ok := header(row)
	if !ok || is != kind || keyBytes != len(key) || valueBytes > len(row)-rowHeader || kind != kindRecord && valueBytes != len(row)-rowHeader {
		return nil, false
	}
	value = row[rowHeader : rowHeader+valueBytes]
	return value, binary.BigEndian.Uint32(row[9:]) == rowSum(kind, key, value)
}

// sealed reports whether the checksums of a row of any kind are right. The row's page was read whole.
func sealed(key, row []byte) bool {
	of, _, _, _ := header(row)
	_, ok := openRow(of, key, row)
	if ok && of == kindRecord {
		_, ok = recordIDs(key, row)
	}
	return ok
}

// A record's row ends with its ids: their hashes (16 each), their number (4), and their own checksum (4), so that
// damage of the record leaves its ids readable.
const idsEnd = 4 + 4

// sealRecord returns the row of a record.
func sealRecord(key, data []byte, ids []idHash) []byte {
	row := appendSealed(make([]byte, 0, rowHeader+len(data)+len(ids)*len(idHash{})+idsEnd), kindRecord, key, data)
	from := len(row)
	for _, id := range ids {
		row = append(row, id[:]...)
	}
	row = binary.BigEndian.AppendUint32(row, uint32(len(ids)))
	return binary.BigEndian.AppendUint32(row, rowSum(kindIDs, key, row[from:]))
}

// recordIDs returns the hashes of a record's ids. ok reports that their checksum is right.
func recordIDs(key, row []byte) (hashes []idHash, ok bool) {
	if len(row) < rowHeader+idsEnd {
		return nil, false
	}
	end := len(row) - idsEnd
	n := int(binary.BigEndian.Uint32(row[end:]))
	if n > (end-rowHeader)/len(idHash{}) {
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

// get returns the value of a key. there reports that the key exists, even if its row is damaged.
func get(c *bbolt.Cursor, kind kind, key []byte) (value []byte, ok, there bool) {
	k, row := c.Seek(key)
	if !bytes.Equal(k, key) {
		return nil, false, false
	}
	value, ok = unseal(kind, key, row)
	return value, ok, true
}

// rows yields the rows of a bucket whose keys begin with a prefix. A nil bucket has none.
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

// nameRows is a name that should be in two buckets, with the row of each, or nil.
type nameRows struct {
	name string
	rows [2][]byte
}

// names returns up to limit names that begin with prefix and are greater than after, in order, from two buckets that
// both hold each name. It includes a name that one bucket lacks or has out of order.
func names(first, second *bbolt.Bucket, prefix, after string, limit int) []nameRows {
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
