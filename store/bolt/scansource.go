package bolt

import "io"

// source is a file that is read in large pieces, of which parts may be unreadable, and
// whose content may lead to the same bytes again and again.
type source struct {
	file io.ReaderAt
	size int64

	at     int64 // of piece
	piece  []byte
	large  []byte   // a stretch that is longer than pieces are
	spent  []uint32 // by block: how many bytes of it have been looked at
	unread int64
	failed map[int64]bool // blocks that could not be read
}

const pieceBytes = 1 << 20

func newSource(file io.ReaderAt, size int64) *source {
	return &source{file: file, size: size, at: -1, spent: make([]uint32, size/blockBytes+1), failed: map[int64]bool{}}
}

// bytes returns n bytes of the file, which are valid until the next call. What cannot be
// read is zero.
func (s *source) bytes(at int64, n int) ([]byte, bool) {
	if at < 0 || n < 0 || int64(n) > s.size || at > s.size-int64(n) {
		return nil, false
	}
	if s.at >= 0 && at >= s.at && at+int64(n) <= s.at+int64(len(s.piece)) {
		return s.piece[at-s.at:][:n], true
	}
	if n > pieceBytes/2 {
		if cap(s.large) < n {
			s.large = make([]byte, n)
		}
		s.large = s.large[:n]
		s.read(s.large, at)
		return s.large, true
	}
	if s.piece == nil {
		s.piece = make([]byte, 0, pieceBytes)
	}
	// Tables lead forward, but keys stand before what a stretch begins with.
	s.at = max(0, at-blockBytes)
	s.piece = s.piece[:min(pieceBytes, s.size-s.at)]
	s.read(s.piece, s.at)
	return s.piece[at-s.at:][:n], true
}

// ReadAt implements [io.ReaderAt]. What cannot be read is zero.
func (s *source) ReadAt(into []byte, at int64) (int, error) {
	data, ok := s.bytes(at, len(into))
	if !ok {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(into, data), nil
}

// read reads what can be read. Of the rest it takes note, block by block.
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

// maxSpent is how many bytes of a block are looked at, in all. Rows do not overlap, so a
// sound file needs a few times its size; one that was made to waste time gets no more.
const maxSpent = 32 * blockBytes

// spend takes note that bytes are going to be looked at, and reports whether they may be.
func (s *source) spend(at int64, n int) bool {
	end := at + int64(n)
	if at < 0 || end > s.size {
		return false
	}
	for pass := range 2 {
		for from := at; from < end; {
			block := from / blockBytes
			to := min(end, (block+1)*blockBytes)
			if pass == 1 {
				s.spent[block] += uint32(to - from)
			} else if s.spent[block]+uint32(to-from) > maxSpent {
				return false
			}
			from = to
		}
	}
	return true
}
