package bolt

import (
	"context"
	"io"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Decoders decodes the values of rows for [ScanFile].
type Decoders struct {
	// RecordSeq returns the seq in an encoded record. The result ok reports whether the argument is an encoded
	// record.
	RecordSeq func(encoded []byte) (seq uint64, ok bool)

	// IsValue reports whether the argument is an encoded shared value.
	IsValue func(encoded []byte) bool

	// MaxBytes is the maximum length of an encoded record or value.
	MaxBytes int
}

// Rank is the evidence that a page belongs to the newest commit of the file.
type Rank uint8

const (
	Free    Rank = iota // the page is in the free list, and from an earlier or a failed commit
	Unknown             // it is unknown whether the page is in use
	InUse               // the page is reachable in the tree
)

// Scan has the rows with valid checksums in a file, including rows that are not reachable in the tree. Pages of
// earlier commits are scanned too. So most rows occur several times, and some rows are outdated or deleted.
type Scan struct {
	// Records are ordered by number, seq, descending rank, and offset. The seq in each record equals the seq in its
	// key.
	Records []ScannedRecord
	// Entries and Heads are ordered by number and descending rank, without duplicates.
	Entries []ScannedEntry
	Heads   []ScannedHead
	// Values are ordered by name and descending rank.
	Values []ScannedValue
	// ValueNames are the names of shared values in bucketSharedNames.
	ValueNames []string

	// Pages is the number of complete pages in the file.
	Pages uint64
	// BrokenPages is the number of pages in use that cannot be decoded.
	BrokenPages int
	// Unread is the number of bytes that could not be read from disk.
	Unread int64
	// Metas is the number of undamaged meta pages, 0 to 2.
	Metas int
	// FreeKnown is set if the free list of the newest commit was read.
	FreeKnown bool

	file     io.ReaderAt
	catalog  catalog
	unlinked map[uint64]Rank
}

// ScannedRecord is a copy of a record in the file.
type ScannedRecord struct {
	Number   uint64 // number of the session
	Seq      uint64
	At       int64 // offset of the encoded record in the file
	Size     uint32
	Sum      uint32 // checksum in the encoded record
	Rank     Rank
	SumValid bool // whether the checksum of the row, which covers the session number, is valid
}

// ScannedEntry is a session's entry.
type ScannedEntry struct {
	Number uint64
	Name   string
	Rank   Rank

	at   int64
	size int
}

// ScannedHead is a session's head.
type ScannedHead struct {
	Number uint64
	Name   string
	Last   uint64
	Chain  backend.Chain
	Rank   Rank
}

// ScannedValue is a shared value.
type ScannedValue struct {
	Name string
	Rank Rank

	sum  uint32
	at   int64
	size int
}

// SessionState is what a scan shows about the existence of a session.
type SessionState int

const (
	SessionUnknown SessionState = iota // some pages cannot be read
	SessionExists
	SessionUnassigned  // the number is not assigned yet, unless a later commit has assigned it
	SessionDeleted     // the session was deleted or never completely created
	SessionConflicting // either the entry or the head is missing
)

// ScanFile finds the rows of a bbolt file anywhere in the file, even if the file is damaged. It needs memory for
// about 40 bytes per copy of a record, plus the largest encoded record. Its time is linear in the size of the file,
// whatever the content. The only error that it returns is the error of ctx.
func ScanFile(ctx context.Context, file io.ReaderAt, size int64, decoders Decoders) (*Scan, error) {
	s := &scanner{
		src: newSource(file, size), decoders: decoders,
		out:     &Scan{file: file, unlinked: map[uint64]Rank{}},
		entries: map[ScannedEntry]ScannedEntry{}, heads: map[ScannedHead]Rank{}, values: map[ScannedValue]ScannedValue{},
		names: map[string]bool{},
	}
	s.survey(file)
	if err := s.scanRows(ctx); err != nil {
		return nil, err
	}
	s.finish()
	return s.out, nil
}

// Read returns a copy of an encoded record.
func (s *Scan) Read(r ScannedRecord) ([]byte, error) {
	return readAt(s.file, r.At, int(r.Size))
}

// ReadMeta returns the creation id and the meta record of an entry.
func (s *Scan) ReadMeta(e ScannedEntry) (creation string, meta []byte, err error) {
	entry, err := readAt(s.file, e.at, e.size)
	of, _ := decodeEntry(entry) // the scan has already decoded the entry
	return of.creation, of.meta, err
}

// ReadValue returns an encoded shared value.
func (s *Scan) ReadValue(v ScannedValue) ([]byte, error) { return readAt(s.file, v.at, v.size) }

func readAt(file io.ReaderAt, at int64, size int) ([]byte, error) {
	data := make([]byte, size)
	_, err := file.ReadAt(data, at)
	return data, ignoreEOF(err)
}

// Equal reports whether two values have the same name, size and checksum.
func (v ScannedValue) Equal(other ScannedValue) bool {
	return v.Name == other.Name && v.sum == other.sum && v.size == other.size
}

// IsUnlinked reports whether the list of deleted sessions contains the number. Free pages of the list do not count.
func (s *Scan) IsUnlinked(number uint64) bool {
	rank, ok := s.unlinked[number]
	return ok && rank > Free
}

// UnlinkedComplete reports whether the whole list of deleted sessions was read. If so, every row in use belongs to
// an existing session, unless its number is in the list.
func (s *Scan) UnlinkedComplete() bool { return s.Metas == 0 || s.catalog.unlinked.complete }

// ignoreEOF returns err, or nil for [io.EOF].
func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
