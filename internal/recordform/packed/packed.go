// Package packed compresses the bodies of records: each by itself, with a dictionary of what
// bodies have in common. What it writes is one frame of Zstandard (RFC 8878), which says by which
// dictionary and how long the body is; it has no checksum of its own.
package packed

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"github.com/klauspost/compress/zstd"
)

// MaxBytes is how long a body may be to be packed, and a frame to be opened. It bounds what a few
// bytes can make a reader hold.
const MaxBytes = 1 << 20

// Dictionary is what bodies are packed with, and DictionaryID how frames name it. Bodies that
// are stored are read with it for ever: it never changes. A better one would be another one
// beside it. bench/dictionary makes such.
//
//go:embed 32769.dict
var Dictionary []byte

// DictionaryID is from the range that is free for private use.
const DictionaryID = 32769

// A program has one encoder and one decoder, from its start on: they are made of channels, and one
// that was made when first needed, in a bubble of testing/synctest, could not be used outside it.
var (
	encoder = newEncoder()
	decoder = newDecoder()
)

// window bounds the memory of an encoder, and mostAtOnce how many bodies are packed at a time: each
// takes a quarter of a megabyte for good, beside a third for all.
const (
	window     = 256 << 10
	mostAtOnce = 4
)

func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderDict(Dictionary),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderConcurrency(min(mostAtOnce, runtime.GOMAXPROCS(0))))
	if err != nil {
		panic("patch: " + err.Error()) // all of it is written here
	}
	e.EncodeAll(nil, nil) // makes the channel
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderDicts(Dictionary), zstd.WithDecoderConcurrency(0),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(MaxBytes), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic("patch: " + err.Error())
	}
	return d
}

// Append appends the body's frame to dst. The body has at most MaxBytes.
func Append(dst, body []byte) []byte { return encoder.EncodeAll(body, dst) }

// Open returns the body of a frame. It is in buf, if that has room for it.
func Open(buf, frame []byte) ([]byte, error) {
	n, err := Len(frame)
	if err != nil {
		return nil, err
	}
	if cap(buf) < n {
		buf = make([]byte, 0, n)
	}
	body, err := decoder.DecodeAll(frame, buf[:0:n])
	if err == nil && len(body) != n {
		err = fmt.Errorf("its body is %d bytes, not %d", len(body), n)
	}
	return body, err
}

// Len returns how long the body of a frame says it is, if the bytes are one frame as Append
// writes them, and nothing else: a decoder would also take several, and some that say nothing.
func Len(frame []byte) (int, error) {
	body, size, err := measure(frame)
	if err == nil && size != len(frame) {
		err = errors.New("the frame does not end where the record does")
	}
	return body, err
}

// Length returns how many bytes the frame takes that b begins with. If b ends before that is known,
// whole is false, and n is a length above that of b which the frame has at least. It allocates
// nothing, but for an error.
func Length(b []byte) (n uint64, whole bool, err error) {
	_, size, err := measure(b)
	return uint64(size), size <= len(b), err
}

// Beginning is what each frame begins with.
var Beginning = []byte{0x28, 0xb5, 0x2f, 0xfd}

// What follows is the descriptor: a single segment, no checksum, two bytes of the dictionary's
// id, and in its highest bits in how many bytes the body's length stands.
const descriptor = 0b00_100010

const blockHeader = 3

// measure reads the headers of a frame and of its blocks. size is how many bytes the frame
// takes, or, if b ends before that is known, more than b has.
func measure(b []byte) (body, size int, err error) {
	at := len(Beginning) + 3
	switch {
	case !bytes.HasPrefix(b, Beginning[:min(len(b), len(Beginning))]):
		return 0, 0, errors.New("no frame")
	case len(b) < at+4:
		return 0, at + 4, nil
	}
	switch id := binary.LittleEndian.Uint16(b[5:]); {
	case b[4]&^0xc0 != descriptor:
		return 0, 0, errors.New("a frame of another kind")
	case id != DictionaryID:
		return 0, 0, fmt.Errorf("packed with dictionary %d; this program knows %d, a newer one may know it", id, DictionaryID)
	}
	switch b[4] >> 6 {
	case 0:
		body, at = int(b[at]), at+1
	case 1:
		body, at = int(binary.LittleEndian.Uint16(b[at:]))+256, at+2
	case 2:
		body, at = int(binary.LittleEndian.Uint32(b[at:])), at+4
	default:
		return 0, 0, errors.New("a frame of another kind")
	}
	if body > MaxBytes {
		return 0, 0, fmt.Errorf("a body of %d bytes; at most %d are ever packed", body, MaxBytes)
	}
	for last := false; !last; {
		if len(b) < at+blockHeader {
			return body, at + blockHeader, nil
		}
		header := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
		n := header >> 3
		if header>>1&3 == 1 { // one byte that comes again and again
			n = 1
		}
		if at += blockHeader + n; at > MaxBytes {
			return 0, 0, fmt.Errorf("a frame of more than %d bytes", MaxBytes)
		}
		last = header&1 == 1
	}
	return body, at, nil
}
