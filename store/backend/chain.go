package backend

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Chain is a checksum over the checksums of a log's records, in order. It shows whether the log still has the records
// that were written, each at its seq. Computing it does not need the bodies of the records. [Chain.Replace] replaces
// the checksum of a record completely, so that the text of an erased record cannot be guessed from the chain. The
// zero value is the chain of an empty log.
type Chain struct {
	// Sum is the CRC-32C (Castagnoli) of the checksums. Each checksum is four bytes, big endian.
	Sum uint32
}

// Add returns the chain after a record with this checksum is appended.
func (c Chain) Add(sum uint32) Chain {
	c.Sum = crc32.Update(c.Sum, castagnoli, binary.BigEndian.AppendUint32(nil, sum))
	return c
}

// Replace returns the chain after the checksum of one record changes from old to sum. The argument
// following is the number of records after that record. The time is logarithmic in this number.
func (c Chain) Replace(following uint64, old, sum uint32) Chain {
	// CRC is linear: the CRCs of two texts of the same length differ by the CRC of their XOR, computed without the
	// initial and the final inversion. Here the XOR of the texts is four bytes followed by zeros.
	differ := ^crc32.Update(^uint32(0), castagnoli, binary.BigEndian.AppendUint32(nil, old^sum))
	c.Sum ^= timesPower(differ, following)
	return c
}

// timesPower returns p·x³²ⁿ modulo the CRC polynomial, which is p after n times four zero bytes. The highest bit is
// the coefficient of x⁰.
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

// times returns the product of a and b modulo the CRC polynomial.
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
