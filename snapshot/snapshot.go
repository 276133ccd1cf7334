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
// version, or of another session or log. Whoever sees it folds from the first record.
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

// Decode returns the view that a snapshot was made of, as [fold.ParseSaved] does. creation
// is the id of the session's creation and last its log's last seq: a snapshot of another
// session, or of a longer log, is refused. Whatever the bytes say, they cost time and memory
// linear in their number. The error matches [ErrUnusable].
func Decode(data []byte, creation string, last uint64) (fold.Saved, error) {
	unusable := func(format string, args ...any) (fold.Saved, error) {
		return fold.Saved{}, fmt.Errorf("%w: %w", ErrUnusable, fmt.Errorf(format, args...))
	}
	if len(data) < headerBytes {
		return unusable("%d bytes", len(data))
	}
	if sum, want := checksum(data), binary.LittleEndian.Uint32(data); sum != want {
		return unusable("checksum %08x, want %08x", sum, want)
	}
	s, err := fold.ParseSaved(data[headerBytes:])
	switch {
	case errors.Is(err, fold.ErrOutdated):
		return unusable("%w: %v", ErrOutdated, err)
	case err != nil:
		return unusable("%v", err)
	case s.Creation != creation:
		return unusable("it is of another session, created as %q", s.Creation)
	case s.Seq > last:
		return unusable("it stands at record %d, but the log ends at %d", s.Seq, last)
	}
	return s, nil
}
