package snapshot

import (
	"bytes"
	"encoding/binary"
)

// Resigned updates the checksum of changed bytes.
func Resigned(data []byte) []byte {
	data = bytes.Clone(data)
	binary.LittleEndian.PutUint32(data, checksum(data))
	return data
}
