package snapshot

import (
	"bytes"
	"encoding/binary"
)

// Resigned returns a copy of a changed snapshot with a correct checksum.
func Resigned(data []byte) []byte {
	data = bytes.Clone(data)
	binary.LittleEndian.PutUint32(data, checksum(data))
	return data
}
