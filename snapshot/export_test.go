package snapshot

import (
	"bytes"
	"encoding/binary"
)

// Resigned gives changed bytes the checksum that they need.
func Resigned(data []byte) []byte {
	data = bytes.Clone(data)
	binary.LittleEndian.PutUint32(data, checksum(data))
	return data
}
