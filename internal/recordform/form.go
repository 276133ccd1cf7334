// Package recordform frames a record's byte form: its header, checksums and compression. Package patch defines the
// content. See docs/FORMAT.md.
//
//	byte 0       Plain
//	bytes 1–4    the record's checksum: CRC32C, little endian, of byte 0 and the content
//	bytes 5–     the content
//
//	byte 0       Compressed
//	bytes 1–4    the record's checksum, as in the plain form
//	bytes 5–8    CRC32C, little endian, of bytes 0 to 4 and all from byte 9 on
//	bytes 9–     the content, compressed: a frame of package packed
//
// Writing and reading a form computes one checksum: for a compressed form that of bytes 5–8, which also covers the
// record's checksum.
package recordform

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/patchlog-dev/patchlog/internal/recordform/packed"
)

// The first byte of a form.
const (
	Plain      = 1
	Compressed = 2
)

// MaxBytes is the maximum length of a form before compression.
const MaxBytes = 64 << 20

// Header is the length of a plain form's header.
const Header = 5

const compressedHeader = 9

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Begin appends the header of a plain form to dst. The content must follow.
func Begin(dst []byte) []byte { return append(dst, Plain, 0, 0, 0, 0) }

// Seal sets the checksum of a plain form.
func Seal(form []byte) { binary.LittleEndian.PutUint32(form[1:], plainSum(form[Header:])) }

// Compress returns the form of [Seal] with its content compressed. It returns form itself if compression does not shorten
// it, if the record has more than 1 MiB, or if form is compressed already. It does not verify the checksum, so form must
// come from [Seal] or [Open], not from a disk. It does not change form, and the result has the same [Checksum]. It is safe
// for concurrent use.
func Compress(form []byte) []byte {
	if len(form) < Header || form[0] != Plain || len(form)-Header > packed.MaxBytes {
		return form
	}
	buf := Buffer()
	defer Release(buf)
	*buf = append((*buf)[:0], Compressed)
	*buf = append(append(*buf, form[1:Header]...), 0, 0, 0, 0)
	*buf = packed.Append(*buf, form[Header:])
	if len(*buf) >= len(form) {
		return form
	}
	binary.LittleEndian.PutUint32((*buf)[Header:], compressedSum(*buf))
	return bytes.Clone(*buf)
}

// PlainSize returns the length of the form before [Compress]. For a form that [Open] refuses the result is at most 1
// MiB and a few bytes, or the form's own length.
func PlainSize(form []byte) int {
	if len(form) > compressedHeader && form[0] == Compressed {
		if n, err := packed.Len(form[compressedHeader:]); err == nil {
			return Header + n
		}
	}
	return len(form)
}

// Checksum returns the record's checksum stored in a form, or 0 if the form is too short. It is the same for the plain
// and the compressed form. [Open] verifies it.
func Checksum(form []byte) uint32 {
	if len(form) < Header {
		return 0
	}
	return binary.LittleEndian.Uint32(form[1:])
}

func plainSum(body []byte) uint32 { return crc32.Update(plainStart, castagnoli, body) }

var plainStart = crc32.Checksum([]byte{Plain}, castagnoli)

// compressedSum returns the checksum over a compressed form except the sum itself.
func compressedSum(form []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, form[:Header]), castagnoli, form[compressedHeader:])
}

// Open verifies a form's length, kind and checksum, and returns its content, which aliases form or buf. Damage is
// detected before decompression.
func Open(form []byte, buf *[]byte) (body []byte, err error) {
	switch {
	case len(form) > MaxBytes:
		return nil, fmt.Errorf("a form of %d bytes; at most %d are ever written", len(form), MaxBytes)
	case len(form) < Header || form[0] == Compressed && len(form) < compressedHeader:
		return nil, fmt.Errorf("a form of %d bytes is cut off", len(form))
	case form[0] == Plain:
		if sum, want := plainSum(form[Header:]), Checksum(form); sum != want {
			return nil, fmt.Errorf("checksum %08x, want %08x", sum, want)
		}
		body = form[Header:]
	case form[0] != Compressed:
		return nil, fmt.Errorf("form %d; this program knows the forms %d and %d, a newer one may know it", form[0], Plain, Compressed)
	default:
		if sum, want := compressedSum(form), binary.LittleEndian.Uint32(form[Header:]); sum != want {
			return nil, fmt.Errorf("checksum %08x of the compressed form, want %08x", sum, want)
		}
		if body, err = packed.Open(*buf, form[compressedHeader:]); err != nil {
			return nil, err
		}
		*buf = body
	}
	if len(body) == 0 {
		return nil, errors.New("a form without content")
	}
	return body, nil
}

// buffers caches buffers for compressed and decompressed contents.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Buffer returns a buffer for [Open]. Return it with [Release].
func Buffer() *[]byte { return buffers.Get().(*[]byte) }

// Release returns a buffer to the cache.
func Release(buf *[]byte) {
	const most = 64 << 10 // drop large ones, which are rare, instead of keeping them
	if cap(*buf) <= most {
		buffers.Put(buf)
	}
}
