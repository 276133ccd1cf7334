// Package snapshot turns a view into bytes and back, so that reading a session need not
// start at its first record.
//
// A snapshot is a cache: it may be missing, stale, of another
// version or damaged, and the answer is the same, only slower. It holds no event: it
// says by seq and index which records do, mostly as ranges.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/patchlog-dev/patchlog/fold"
)

// ErrUnusable is what the errors of [Decode] match: the snapshot is damaged, of another
// version, or of another session or log. Fold from the first record then.
var ErrUnusable = errors.New("unusable snapshot")

// ErrOutdated is what an error of [Decode] matches besides if the snapshot is whole, but
// another version of the program made it.
var ErrOutdated = errors.New("snapshot of another version")

// Bytes 0 to 3 are the CRC32C, little endian, of all the others, which are the view's form. It
// begins with its version.
const headerBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 { return crc32.Checksum(data[headerBytes:], castagnoli) }

// Encode returns the view's snapshot, of the size of [fold.View.AppendBinary]'s form. The
// error is as of that.
func Encode(v fold.View) ([]byte, error) {
	data, err := v.AppendBinary(make([]byte, headerBytes))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(data, checksum(data))
	return data, nil
}

// Decode returns the view that a snapshot was made of, as [fold.Restore] does: empty is the session's
// view without records, with the records at hand that hold the visible events, and last its log's last
// seq. A snapshot of another session, or of a longer log, is refused. Whatever the bytes say, they cost
// time and memory linear in their number and that of the log's records. The error is a *[fold.NeedError]
// that names the records, if some are not at hand, or else matches [ErrUnusable].
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
	case err != nil && !errors.As(err, new(*fold.NeedError)):
		err = fmt.Errorf("%w: %v", ErrUnusable, err)
	}
	return v, err
}
