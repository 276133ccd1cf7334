// Package snapshot encodes views as bytes and decodes them, so that reading a session need not start at its
// first record.
//
// A snapshot is a cache: without it, or if it is stale, damaged or of another version, reads give the same
// result and take longer. It has no events, but the seqs and indices of their records, mostly as ranges.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/patchlog-dev/patchlog/fold"
)

// ErrUnusable matches the errors of [Decode] for a snapshot that is damaged, of another version, or of another
// session or log. The caller must fold from the first record.
var ErrUnusable = errors.New("unusable snapshot")

// ErrOutdated also matches an error of [Decode] if the snapshot is whole but of another version.
var ErrOutdated = errors.New("snapshot of another version")

// Bytes 0 to 3 are the CRC32C, little endian, of all the others, which are the view's form. It
// begins with its version.
const headerBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 { return crc32.Checksum(data[headerBytes:], castagnoli) }

// Encode returns the snapshot of the view: a checksum and the bytes of [fold.View.AppendBinary], whose errors it
// returns.
func Encode(v fold.View) ([]byte, error) {
	data, err := v.AppendBinary(make([]byte, headerBytes))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(data, checksum(data))
	return data, nil
}

// Decode returns the view of a snapshot, as [fold.Restore] does. empty is the session's view without records, which
// provides the records of the visible events; last is the last seq of its log. A snapshot of another session or of
// a longer log is refused. Time and memory are linear in the number of bytes and of the log's records. If records
// are missing, the error is a *[fold.MissingRecordsError] that names them; otherwise it matches [ErrUnusable].
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
