// Package wire guards MessagePack decoding against bytes that no encoder of ours
// wrote. A decoder that trusts a length can be made to ask for gigabytes by five
// bytes, and one that recurses can be made to overflow its stack.
package wire

import (
	"encoding/binary"
	"errors"
)

// MaxDepth is how deeply arrays and maps may nest.
const MaxDepth = 128

// Errors of Scan.
var (
	ErrTruncated = errors.New("a length goes beyond the end")
	ErrTrailing  = errors.New("bytes are left over")
	ErrDeep      = errors.New("nested too deeply")
	ErrReserved  = errors.New("a reserved code")
)

// Scan reports whether b is exactly one well-formed MessagePack value whose lengths
// and counts all fit into b, nested at most [MaxDepth] deep. It allocates nothing and
// takes time linear in b.
func Scan(b []byte) error {
	var open [MaxDepth]uint64 // values still to come, for each array or map entered
	depth, pos := 0, uint64(0)
	size := uint64(len(b))
	for {
		if pos >= size {
			return ErrTruncated
		}
		c := b[pos]
		pos++
		var body, items uint64 // bytes that follow; values that follow
		container := false
		switch {
		case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		case c <= 0x8f:
			items, container = 2*uint64(c&0x0f), true
		case c <= 0x9f:
			items, container = uint64(c&0x0f), true
		case c <= 0xbf:
			body = uint64(c & 0x1f)
		default:
			l := layout[c-0xc0]
			if l.kind == reserved {
				return ErrReserved
			}
			lengthBytes := uint64(l.lengthBytes)
			if size-pos < lengthBytes {
				return ErrTruncated
			}
			n := bigEndian(b[pos : pos+lengthBytes])
			pos += lengthBytes
			switch l.kind {
			case fixed:
				body = uint64(l.extra)
			case bytes:
				body = n + uint64(l.extra)
			case array:
				items, container = n, true
			case mapping:
				items, container = 2*n, true
			}
		}
		if body+items > size-pos { // each item is a byte at least
			return ErrTruncated
		}
		pos += body
		if container && items > 0 {
			if depth == MaxDepth {
				return ErrDeep
			}
			open[depth] = items
			depth++
			continue
		}
		for depth > 0 {
			open[depth-1]--
			if open[depth-1] > 0 {
				break
			}
			depth--
		}
		switch {
		case depth == 0 && pos < size:
			return ErrTrailing
		case depth == 0:
			return nil
		}
	}
}

const (
	reserved = iota
	fixed    // extra bytes follow
	bytes    // a length, then as many bytes and extra ones
	array    // a count, then as many values
	mapping  // a count, then twice as many values
)

// layout says what follows each of the codes from 0xc0 to 0xdf.
var layout = [32]struct {
	kind        int
	lengthBytes int
	extra       int
}{
	0x04: {bytes, 1, 0}, 0x05: {bytes, 2, 0}, 0x06: {bytes, 4, 0}, // bin
	0x07: {bytes, 1, 1}, 0x08: {bytes, 2, 1}, 0x09: {bytes, 4, 1}, // ext
	0x0a: {fixed, 0, 4}, 0x0b: {fixed, 0, 8}, // float
	0x0c: {fixed, 0, 1}, 0x0d: {fixed, 0, 2}, 0x0e: {fixed, 0, 4}, 0x0f: {fixed, 0, 8}, // uint
	0x10: {fixed, 0, 1}, 0x11: {fixed, 0, 2}, 0x12: {fixed, 0, 4}, 0x13: {fixed, 0, 8}, // int
	0x14: {fixed, 0, 2}, 0x15: {fixed, 0, 3}, 0x16: {fixed, 0, 5}, 0x17: {fixed, 0, 9}, 0x18: {fixed, 0, 17}, // fixext
	0x19: {bytes, 1, 0}, 0x1a: {bytes, 2, 0}, 0x1b: {bytes, 4, 0}, // str
	0x1c: {array, 2, 0}, 0x1d: {array, 4, 0},
	0x1e: {mapping, 2, 0}, 0x1f: {mapping, 4, 0},
}

func bigEndian(b []byte) uint64 {
	var full [8]byte
	copy(full[8-len(b):], b)
	return binary.BigEndian.Uint64(full[:])
}
