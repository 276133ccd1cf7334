package backend

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Chain is a checksum over the checksums of a log's records, in order. It proves that each record is the one that was
// written at its place, and can be computed without the records' bodies. [Chain.Replace] also removes the checksum of a
// replaced record, from which its text could be guessed. The zero value is the chain of an empty log.
type Chain struct {
	// Sum is the CRC32C (Castagnoli) of the checksums, four bytes each, big endian.
	Sum uint32
}

// Add returns the chain with one more record, whose checksum is given.
func (c Chain) Add(sum uint32) Chain {
	c.Sum = crc32.Update(c.Sum, castagnoli, binary.BigEndian.AppendUint32(nil, sum))
	return c
}

// Replace returns the chain after one record is replaced: its checksum changes from old to sum. following is the number
// of records after it. The time is linear in the number of bits of following.
func (c Chain) Replace(following uint64, old, sum uint32) Chain {
	// The CRCs of two texts of the same length differ by the CRC of the difference of the texts, without the initial and the
	// final inversion. Here the difference is four bytes, followed by zeros.
	differ := ^crc32.Update(^uint32(0), castagnoli, binary.BigEndian.AppendUint32(nil, old^sum))
	c.Sum ^= timesPower(differ, following)
	return c
}

// timesPower returns p x³²ⁿ modulo the polynomial of the CRC: p after n times four bytes of zeros. The highest bit is the
// coefficient of x⁰.
func timesPower(p uint32, n uint64) uint32 {
	power := uint32(1 << 30) // x
	for range 5 {
		power = times(power, power)
	}
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			p = times(p, power)
		}
		power = times(power, power)
	}
	return p
}

// times multiplies modulo the polynomial of the CRC.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		over := b & 1
		b >>= 1
		if over != 0 {
			b ^= crc32.Castagnoli
		}
	}
	return product
}
