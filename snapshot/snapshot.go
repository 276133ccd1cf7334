// Package snapshot encodes views as bytes and decodes them, so that reading a session need not start at its first
// record.
//
// A snapshot is a cache: if it is missing, stale, damaged or of another version, reads are slower but give the same
// result. It holds no events, only the seqs and indices of their records, mostly as ranges.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/patchlog-dev/patchlog/fold"
)

// ErrUnusable matches errors of [Decode] for a snapshot that is damaged, of another version, or of another session
// or log. The caller must fold from the first record.
var ErrUnusable = errors.New("unusable snapshot")

// ErrOutdated also matches such an error if the snapshot is intact but of another version.
var ErrOutdated = errors.New("snapshot of another version")

// Bytes 0 to 3 are the CRC32C, little endian, of the rest, which is the view's binary form.
const headerBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 { return crc32.Checksum(data[headerBytes:], castagnoli) }

// Encode returns the snapshot of the view: a checksum and the bytes of [fold.View.AppendBinary]. Errors are as from
// AppendBinary.
func Encode(v fold.View) ([]byte, error) {
	data, err := v.AppendBinary(make([]byte, headerBytes))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(data, checksum(data))
	return data, nil
}

// Decode returns the view of a snapshot, as [fold.Restore] does. empty is the session's view without records, with
// the records of the visible events supplied; last is the last seq of its log. If records are missing, the error is
// a *[fold.MissingRecordsError] that names them; otherwise it matches [ErrUnusable]. Time and memory are linear in
// the number of bytes and of the log's records.
func Decode(data []byte, empty fold.View, last uint64) (fold.View, error) {
	if len(data) < headerBytes {
		return fold.View{}, fmt.Errorf("%w: %d bytes", ErrUnusable, len(data))
	}
	if sum, want := checksum(data), binary.LittleEndian.Uint32(data); sum != want {
		return fold.View{}, fmt.Errorf("%w: checksum %08x, want %08x", ErrUnusable, sum, want)
	}
	v, err := fold.Restore(empty, data[headerBytes:], last)
	switch {
	case errors.Is(err, fold.ErrOutdated):
		err = fmt.Errorf("%w: %w: %v", ErrUnusable, ErrOutdated, err)
	case err != nil && !errors.As(err, new(*fold.MissingRecordsError)):
		err = fmt.Errorf("%w: %v", ErrUnusable, err)
	}
	return v, err
}
