// Package recordform implements the frame around a record's byte form: header, checksums and compression.
// Package patch defines the content. docs/FORMAT.md describes the form.
//
//	byte 0       Plain
//	bytes 1–4    the record's checksum: CRC32C, little endian, of byte 0 and the content
//	bytes 5–     the content
//
//	byte 0       Compressed
//	bytes 1–4    the record's checksum, as in the plain form
//	bytes 5–8    CRC32C, little endian, of bytes 0 to 4 and the bytes from byte 9 on
//	bytes 9–     the compressed content: a frame of package packed
//
// Writing or reading a form computes only one checksum. For a compressed form, this is the checksum in bytes
// 5–8, which also covers the record's checksum.
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

// Values of the first byte of a form.
const (
	Plain      = 1
	Compressed = 2
)

// MaxBytes is the maximum length of a form before compression.
const MaxBytes = 64 << 20

// Header is the length of the header of a plain form.
const Header = 5

const compressedHeader = 9

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Begin appends the header of a plain form to dst. The content must follow.
func Begin(dst []byte) []byte { return append(dst, Plain, 0, 0, 0, 0) }

// Seal sets the checksum of a plain form.
func Seal(form []byte) { binary.LittleEndian.PutUint32(form[1:], plainSum(form[Header:])) }

// Compress returns a plain form with its content compressed. The result has the same [Checksum]. Compress returns
// form itself if compression does not make the form shorter, if form is already compressed, or if the content
// exceeds 1 MiB.
//
// Compress does not verify the checksum. The caller must pass a form that [Seal] made or [Open] verified. Compress
// does not change form. It is safe for concurrent use.
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

// PlainSize returns the length of the form before [Compress]. If the form is damaged, the result may be wrong. A
// wrong result is either the length of form, or at most 1 MiB plus the header.
func PlainSize(form []byte) int {
	if len(form) > compressedHeader && form[0] == Compressed {
		if n, err := packed.Len(form[compressedHeader:]); err == nil {
			return Header + n
		}
	}
	return len(form)
}

// Checksum returns the record's checksum, which is stored in the form. The plain form and the compressed form have
// the same checksum. If the form is too short, Checksum returns 0. Checksum does not verify the checksum. [Open]
// does so.
func Checksum(form []byte) uint32 {
	if len(form) < Header {
		return 0
	}
	return binary.LittleEndian.Uint32(form[1:])
}

func plainSum(body []byte) uint32 { return crc32.Update(plainStart, castagnoli, body) }

var plainStart = crc32.Checksum([]byte{Plain}, castagnoli)

// compressedSum returns the checksum of a compressed form. Bytes 5–8, which store this checksum, are not covered.
func compressedSum(form []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, form[:Header]), castagnoli, form[compressedHeader:])
}

// Open verifies the length, the kind and the checksum of a form, and returns the content. The content aliases form
// or buf. Damage is detected before decompression.
func Open(form []byte, buf *[]byte) (body []byte, err error) {
	switch {
	case len(form) > MaxBytes:
		return nil, fmt.Errorf("the form has %d bytes; the maximum is %d", len(form), MaxBytes)
	case len(form) < Header || form[0] == Compressed && len(form) < compressedHeader:
		return nil, fmt.Errorf("the form is truncated after %d bytes", len(form))
	case form[0] == Plain:
		if sum, want := plainSum(form[Header:]), Checksum(form); sum != want {
			return nil, fmt.Errorf("checksum %08x, want %08x", sum, want)
		}
		body = form[Header:]
	case form[0] != Compressed:
		return nil, fmt.Errorf("unknown form %d; this program supports the forms %d and %d, and a newer version may support this one", form[0], Plain, Compressed)
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
		return nil, errors.New("the form has no content")
	}
	return body, nil
}

// buffers is a pool of buffers for compressed and decompressed contents.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Buffer returns a buffer for [Open]. The caller returns it with [Release].
func Buffer() *[]byte { return buffers.Get().(*[]byte) }

// Release returns a buffer to the pool.
func Release(buf *[]byte) {
	const maxCached = 64 << 10 // large buffers are rare, so they are not pooled
	if cap(*buf) <= maxCached {
		buffers.Put(buf)
	}
}
