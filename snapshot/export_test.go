package snapshot

import (
	"bytes"
	"encoding/binary"

	"github.com/patchlog-dev/patchlog/fold"
)

// Signed gives bytes the header that lets Decode look at the rest.
func Signed(data []byte) []byte {
	data = append(bytes.Clone(data), make([]byte, max(0, headerBytes-len(data)))...)
	form, err := fold.View{}.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	data[0], data[1] = Version, form[0]
	binary.LittleEndian.PutUint32(data[2:], checksum(data))
	return data
}

// Resigned gives changed bytes the checksum that they need.
func Resigned(data []byte) []byte {
	data = bytes.Clone(data)
	binary.LittleEndian.PutUint32(data[2:], checksum(data))
	return data
}
