package backend

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Chain is a checksum over the checksums of a log's records, in their order. It says of
// each record that it is the one that was written there. It needs no record's body. A record
// that is replaced leaves nothing behind, its checksum neither, by which others could find
// out what it said: see [Chain.Replace]. The zero value is the chain of an empty log.
type Chain struct {
	// Sum is the CRC32C (Castagnoli) of the checksums, four bytes each, big endian.
	Sum uint32
}

// Add returns the chain with one more record, whose checksum is given.
func (c Chain) Add(sum uint32) Chain {
	c.Sum = crc32.Update(c.Sum, castagnoli, binary.BigEndian.AppendUint32(nil, sum))
	return c
}

// Replace returns the chain of the same log with another record in the place of one that the
// chain counts, whose checksum was old and is sum now, and which following records follow. It
// takes time linear in the number of bits of following.
func (c Chain) Replace(following uint64, old, sum uint32) Chain {
	// A CRC of texts of one length that differ is, but for a term that they have in common, a
	// sum over their bits. So two differ by the CRC, without that term, of what the texts
	// differ by: here four bytes, followed by zeros.
	differ := ^crc32.Update(^uint32(0), castagnoli, binary.BigEndian.AppendUint32(nil, old^sum))
	c.Sum ^= timesPower(differ, following)
	return c
}

// timesPower returns p x³²ⁿ modulo the polynomial of the CRC: what n times four bytes of
// zeros make of p. The highest bit is that of x⁰.
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
