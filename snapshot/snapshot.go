// Package snapshot encodes views as bytes and decodes them. With a snapshot, a reader need not fold a session
// from its first record.
//
// A snapshot is a cache. If it is missing, stale, damaged or of another version, reads give the same result but
// are slower. A snapshot contains no events. It refers to events by the seqs of their records and by indices,
// mostly as ranges.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/patchlog-dev/patchlog/fold"
)

// ErrUnusable is matched by an error of [Decode] if the snapshot is damaged, has another version, or belongs to
// another session or log. The caller must then fold from the first record.
var ErrUnusable = errors.New("unusable snapshot")

// ErrOutdated is matched by an error of [Decode] if the snapshot is intact but has another version. Such an
// error also matches [ErrUnusable].
var ErrOutdated = errors.New("snapshot of another version")

// The first four bytes are the CRC32C, in little endian, of the other bytes. The other bytes are the view's
// binary form.
const headerBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 { return crc32.Checksum(data[headerBytes:], castagnoli) }

// Encode returns the snapshot of a view: a checksum and the result of [fold.View.AppendBinary]. It returns the
// same errors as AppendBinary.
func Encode(v fold.View) ([]byte, error) {
	data, err := v.AppendBinary(make([]byte, headerBytes))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(data, checksum(data))
	return data, nil
}

// Decode returns the view of a snapshot, as [fold.Restore] does. The argument empty is the result of [fold.New]
// for the session. The caller must supply the records of the visible events, by calling [fold.View.WithRecords]
// on the argument empty. The argument last is the last seq of the session's log. If records are missing, the
// error is a *[fold.MissingRecordsError] that names them. Any other error matches [ErrUnusable]. Decode takes
// time and memory linear in the size of the snapshot and in the number of the log's records.
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
