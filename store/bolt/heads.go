package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// head is what bucketHeads holds of a session: how far its log goes, and what its records
// and the rows of its ids add up to. An append writes it anew, and leaves the session's
// entry alone, which has the initial state and may be long.
type head struct {
	number []byte
	last   uint64
	chain  backend.Chain
	index  index
}

// A head is number ‖ last ‖ chain ‖ rows of ids ‖ their sum ‖ checksum
// of the name and all before.
const (
	headSum   = 8 + 8 + 4 + 8 + 4
	headBytes = headSum + 4
)

func encodeHead(name string, h head) []byte {
	out := make([]byte, 0, headBytes)
	out = append(out, h.number...)
	out = binary.BigEndian.AppendUint64(out, h.last)
	out = binary.BigEndian.AppendUint32(out, h.chain.Sum)
	out = binary.BigEndian.AppendUint64(out, h.index.rows)
	out = binary.BigEndian.AppendUint32(out, h.index.sum)
	return binary.BigEndian.AppendUint32(out, sumOf([]byte(name), out))
}

func decodeHead(name string, row []byte) (head, error) {
	if len(row) != headBytes || sumOf([]byte(name), row[:headSum]) != binary.BigEndian.Uint32(row[headSum:]) {
		return head{}, fmt.Errorf("%w: the checksum of the head of session %q", backend.ErrDamaged, name)
	}
	return head{
		number: bytes.Clone(row[:8]),
		last:   binary.BigEndian.Uint64(row[8:]),
		chain:  backend.Chain{Sum: binary.BigEndian.Uint32(row[16:])},
		index:  index{rows: binary.BigEndian.Uint64(row[20:]), sum: binary.BigEndian.Uint32(row[28:])},
	}, nil
}

// sumOf is the checksum of a key and its value.
func sumOf(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// setVersion writes the file's version, and the last number given out.
func setVersion(tx *txn, numbers uint64) error {
	meta := tx.Bucket(bucketMeta)
	if err := meta.Put(keyVersion, number(FileVersion)); err != nil {
		return err
	}
	return meta.Put(keyNumbers, number(numbers))
}

// takeNumber gives out the number that nextNumber has returned.
func takeNumber(tx *txn) error {
	n, err := tx.Bucket(bucketSessions).written.NextSequence()
	if err != nil {
		return err
	}
	return tx.Bucket(bucketMeta).Put(keyNumbers, number(n))
}

// nextNumber returns the number of the next session. That it is free is known in two
// places, and nothing is stored under it.
func nextNumber(tx *txn) ([]byte, error) {
	given := tx.Bucket(bucketSessions).Sequence()
	if noted := tx.Bucket(bucketMeta).Get(keyNumbers); !bytes.Equal(noted, number(given)) {
		return nil, fmt.Errorf("%w: of the numbers of sessions the last one given out is %d, or %x", backend.ErrDamaged, given, noted)
	}
	next := number(given + 1)
	for _, bucket := range [][]byte{bucketRecords, bucketIDs, bucketSnapshots} {
		if k, _ := tx.Bucket(bucket).Cursor().Seek(next); bytes.HasPrefix(k, next) {
			return nil, fmt.Errorf("%w: bucket %q has key %x, of a session that does not exist yet", backend.ErrDamaged, bucket, k)
		}
	}
	return next, nil
}
