package snapshot

import (
	"bytes"
	"encoding/binary"
)

// Signed gives bytes the header that lets Decode look at the rest.
func Signed(data []byte) []byte {
	data = append(bytes.Clone(data), make([]byte, max(0, headerBytes-len(data)))...)
	data[0], data[1] = Version, 1
	binary.LittleEndian.PutUint32(data[2:], checksum(data))
	return data
}
