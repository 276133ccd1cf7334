package backend

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Chain is a checksum over the checksums of a log's records, in their order. It says of
// each record that it is the one that was written there. It needs no record's body: one
// that is erased leaves its checksum behind, and the chain holds. The zero value is the
// chain of an empty log.
type Chain struct {
	// Since is the seq of the record behind which the chain begins. It is 0 but for a log
	// that is older than chains.
	Since uint64

	// Sum is the CRC32C (Castagnoli) of the checksums, four bytes each, big endian.
	Sum uint32
}

// Add returns the chain with one more record, whose checksum is given.
func (c Chain) Add(sum uint32) Chain {
	c.Sum = crc32.Update(c.Sum, castagnoli, binary.BigEndian.AppendUint32(nil, sum))
	return c
}
