package bolt

import (
	"io"
	"slices"
)

// source reads a file in large pieces. It tolerates unreadable parts of the file. It also tolerates a crafted file
// whose rows refer to the same bytes many times.
type source struct {
	file io.ReaderAt
	size int64

	at     int64 // offset of piece in the file
	piece  []byte
	spent  int64 // number of bytes read for rows
	unread int64
	failed map[int64]bool // numbers of the blocks that could not be read
}

const (
	pieceBytes = 1 << 20
	blockBytes = 4 << 10
)

func newSource(file io.ReaderAt, size int64) *source {
	return &source{file: file, size: size, at: -1, failed: map[int64]bool{}}
}

// bytes returns n bytes of the file. The bytes are valid until the next call of bytes. Unreadable bytes are zero.
func (s *source) bytes(at int64, n int) ([]byte, bool) {
	if at < 0 || n < 0 || int64(n) > s.size || at > s.size-int64(n) {
		return nil, false
	}
	if at >= s.at && at+int64(n) <= s.at+int64(len(s.piece)) {
		return s.piece[at-s.at:][:n], true
	}
	// The key and the page header precede the row.
	s.at = max(0, at-pieceBytes/8)
	size := min(pieceBytes+int64(n), s.size-s.at)
	s.piece = slices.Grow(s.piece[:0], int(size))[:size]
	s.read(s.piece, s.at)
	return s.piece[at-s.at:][:n], true
}

// ReadAt implements [io.ReaderAt]. Unreadable bytes are zero.
func (s *source) ReadAt(into []byte, at int64) (int, error) {
	data, ok := s.bytes(at, len(into))
	if !ok {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(into, data), nil
}

// read fills the slice into with bytes of the file. After an error it reads block by block and counts the
// unreadable blocks.
func (s *source) read(into []byte, at int64) {
	if n, err := s.file.ReadAt(into, at); err == nil || err == io.EOF && n == len(into) {
		return
	}
	for len(into) > 0 {
		n := min(int64(len(into)), blockBytes-at%blockBytes)
		if got, err := s.file.ReadAt(into[:n], at); err != nil && int64(got) < n {
			clear(into[:n])
			if block := at / blockBytes; !s.failed[block] {
				s.failed[block] = true
				s.unread += blockBytes
			}
		}
		into, at = into[n:], at+n
	}
}

// maxSpent limits the bytes read for rows, as a multiple of the file's size. Rows do not overlap, so only a crafted
// file needs more.
const maxSpent = 32

// spend adds n to the bytes read for rows and reports whether the sum is within the limit.
func (s *source) spend(n int) bool {
	s.spent += int64(n)
	return s.spent <= maxSpent*s.size
}
