package bolt

import (
	"context"
	"io"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Forms decodes the values of rows for [ScanFile].
type Forms struct {
	// Record returns the seq in a record's byte form. ok reports whether it is such a form.
	Record func(form []byte) (seq uint64, ok bool)

	// Value reports whether a form is that of a shared value.
	Value func(form []byte) bool

	// MaxBytes is the length of the longest form.
	MaxBytes int
}

// Rank says whether a page belongs to the newest commit of the file.
type Rank uint8

const (
	Free    Rank = iota // on the list of free pages: from an earlier commit or a failed one
	Unknown             // it is not known whether the page is in use
	InUse               // reached by the tree
)

// Scan holds all rows of a file whose checksums are right, including rows that the tree does not lead to. It also reads
// pages of earlier commits, so most rows occur several times, and some are outdated or deleted.
type Scan struct {
	// Records are ordered by number, seq, rank (the highest first) and offset. Each has the seq of its key.
	Records []ScannedRecord
	// Entries and Heads are ordered by number and rank (the highest first), without repetitions.
	Entries []ScannedEntry
	Heads   []ScannedHead
	// Values are ordered by name and rank (the highest first).
	Values []ScannedValue
	// ValueNames are the names of shared values in the bucket that has only names.
	ValueNames []string

	// Pages is the number of pages that fit in the file.
	Pages uint64
	// BrokenPages is the number of pages in use that cannot be decoded.
	BrokenPages int
	// Unread is the number of bytes that the disk failed to read.
	Unread int64
	// Metas is the number of undamaged meta pages, 0 to 2.
	Metas int
	// FreeKnown reports that the list of free pages of the newest commit was read.
	FreeKnown bool

	file     io.ReaderAt
	catalog  catalog
	unlinked map[uint64]Rank
}

// ScannedRecord is the place of a copy of a record.
type ScannedRecord struct {
	Number uint64 // of the session
	Seq    uint64
	At     int64 // of the form, in the file
	Size   uint32
	Sum    uint32 // the checksum in the form
	Rank   Rank
	Sure   bool // the row's checksum, which covers the session's number, is right
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

// Standing says whether the session with a number exists.
type Standing int

const (
	Unsaid   Standing = iota // unknown, because pages cannot be read
	There                    // it exists
	Later                    // its number was not assigned yet; a later commit may have assigned it
	Gone                     // it was deleted, or never finished
	Disputed                 // only one of its entry and its head exists
)

// ScanFile finds the rows of a bbolt file in any state, wherever they are. It needs memory for about 40 bytes per copy
// of a record, plus the largest form. Its time is linear in the file's size, whatever the content. It returns only the
// context's error.
func ScanFile(ctx context.Context, file io.ReaderAt, size int64, forms Forms) (*Scan, error) {
	s := &scanner{
		src: newSource(file, size), forms: forms,
		out:     &Scan{file: file, unlinked: map[uint64]Rank{}},
		entries: map[ScannedEntry]ScannedEntry{}, heads: map[ScannedHead]Rank{}, values: map[ScannedValue]ScannedValue{},
		names: map[string]bool{},
	}
	s.survey(file)
	if err := s.rows(ctx); err != nil {
		return nil, err
	}
	s.finish()
	return s.out, nil
}

// Read returns a copy of a record's form.
func (s *Scan) Read(r ScannedRecord) ([]byte, error) {
	return readAt(s.file, r.At, int(r.Size))
}

// ReadMeta returns the creation id and the meta of an entry.
func (s *Scan) ReadMeta(e ScannedEntry) (creation string, meta []byte, err error) {
	entry, err := readAt(s.file, e.at, e.size)
	of, _ := decodeEntry(entry) // which the scan has done
	return of.creation, of.meta, err
}

// ReadValue returns a shared value's form.
func (s *Scan) ReadValue(v ScannedValue) ([]byte, error) { return readAt(s.file, v.at, v.size) }

func readAt(file io.ReaderAt, at int64, size int) ([]byte, error) {
	data := make([]byte, size)
	_, err := file.ReadAt(data, at)
	return data, noEnd(err)
}

// Same reports whether two values are the same, by their checksums.
func (v ScannedValue) Same(other ScannedValue) bool {
	return v.Name == other.Name && v.sum == other.sum && v.size == other.size
}

// Swept reports whether a page that is not free lists the number of a deleted session.
func (s *Scan) Swept(number uint64) bool {
	rank, ok := s.unlinked[number]
	return ok && rank > Free
}

// SweptKnown reports whether the whole list of deleted sessions' numbers was read. If so, rows in use under other
// numbers are of existing sessions.
func (s *Scan) SweptKnown() bool { return s.Metas == 0 || s.catalog.unlinked.whole }

// noEnd returns err, or nil for [io.EOF].
func noEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
