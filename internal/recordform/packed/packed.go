// Package packed compresses the content of each record separately, with a dictionary of text that records often
// contain. A frame is
//
//	byte 0      FirstByte, which names the dictionary
//	bytes 1–3   the length of the block, big endian
//	bytes 4–    a block of S2, which begins with the length of the content
//
// A frame has no checksum.
package packed

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// MaxBytes is the maximum length of a content, and of a block. It limits the memory that a reader allocates for a
// forged frame.
const MaxBytes = 1 << 20

// FirstByte is the first byte of a frame. It identifies [Dictionary].
const FirstByte = 0xd1

// Dictionary is the compression dictionary. It must never change, because stored records need it. A frame with
// another dictionary needs another first byte.
//
//go:embed records.dict
var Dictionary []byte

var dictionary = s2.MakeDict(Dictionary, nil)

// Header is the length of the header of a frame, which precedes the block.
const Header = 4

// Append appends a frame with the given content to dst. The length of body must be 1 to MaxBytes.
func Append(dst, body []byte) []byte {
	from, maxLen := len(dst)+Header, s2.MaxEncodedLen(len(body))
	dst = slices.Grow(dst, Header+maxLen)[:from+maxLen]
	n := len(dictionary.Encode(dst[from:], body))
	copy(dst[from-Header:], []byte{FirstByte, byte(n >> 16), byte(n >> 8), byte(n)})
	return dst[:from+n]
}

// Open returns the content of a frame. If buf is large enough, the content is stored in buf.
func Open(buf, frame []byte) ([]byte, error) {
	if _, err := Len(frame); err != nil {
		return nil, err
	}
	return dictionary.Decode(buf[:0], frame[Header:])
}

// Len returns the length of the content that a frame records. If the bytes are not exactly one frame, Len returns an
// error.
func Len(frame []byte) (int, error) {
	if len(frame) > 0 && frame[0] != FirstByte {
		return 0, fmt.Errorf("unknown compression dictionary %#x; this program supports %#x, and a newer version may support this one", frame[0], FirstByte)
	}
	if len(frame) < Header {
		return 0, errors.New("the length of the frame differs from the length of the record")
	}
	switch block := int(frame[1])<<16 | int(frame[2])<<8 | int(frame[3]); {
	case block == 0 || block > MaxBytes:
		return 0, fmt.Errorf("the frame has %d bytes; the maximum is %d", block, MaxBytes)
	case Header+block != len(frame):
		return 0, errors.New("the length of the frame differs from the length of the record")
	}
	n, err := s2.DecodedLen(frame[Header:])
	if err == nil && n > MaxBytes {
		err = fmt.Errorf("the content has %d bytes; the maximum is %d", n, MaxBytes)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}
