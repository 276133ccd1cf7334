package bolt

import (
	"context"
	"io"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Forms decode values for [ScanFile].
type Forms struct {
	// Record returns the seq that a record's byte form carries, if the form is one.
	Record func(form []byte) (seq uint64, ok bool)

	// Value reports whether a form is a shared value's.
	Value func(form []byte) bool

	// MaxBytes is how long a form may be.
	MaxBytes int
}

// Rank says whether a page belongs to the newest commit of the file.
type Rank uint8

const (
	Free    Rank = iota // on the list of free pages: of an earlier commit, or of one that failed
	Unknown             // it is not known whether the page is in use
	InUse               // reached by the tree
)

// Scan holds the rows of a file whose checksums are right, whether the tree leads to them or not. It includes pages of
// earlier commits, so most rows occur several times, and some are outdated or deleted.
type Scan struct {
	// Records are in the order of number, seq, rank (the highest first) and place. Each
	// stands behind a key with its own seq.
	Records []ScannedRecord
	// Entries and Heads are in the order of number and rank, the highest first, each once.
	Entries []ScannedEntry
	Heads   []ScannedHead
	// Values are in the order of name and rank, the highest first.
	Values []ScannedValue
	// ValueNames are names of shared values, from where they stand without the value.
	ValueNames []string

	// Pages is how many pages the file has, or could have.
	Pages uint64
	// BrokenPages is how many pages should be in use and are not in form.
	BrokenPages int
	// Unread is how many bytes could not be read from the disk.
	Unread int64
	// Metas is how many of the two meta pages are whole.
	Metas int
	// FreeKnown says that the list of free pages was read, and that no commit is missing
	// from it.
	FreeKnown bool

	file     io.ReaderAt
	catalog  catalog
	unlinked map[uint64]Rank
}

// ScannedRecord is where a copy of a record stands.
type ScannedRecord struct {
	Number uint64 // of the session
	Seq    uint64
	At     int64 // of the form, in the file
	Size   uint32
	Sum    uint32 // the checksum that the form carries
	Rank   Rank
	Sure   bool // the checksum holds that the record has with its session's number
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

// ScanFile reads a bbolt file of any state, and reports the rows that it holds, wherever they stand. It takes memory
// for what it finds, about 40 bytes for each copy of a record, and for the largest form; time linear in the file's
// size, whatever is in it. The error is the context's.
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

// Read returns a record's form. It is the caller's own.
func (s *Scan) Read(r ScannedRecord) ([]byte, error) {
	return readAt(s.file, r.At, int(r.Size))
}

// ReadMeta returns the creation id and the meta that an entry holds.
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

// Swept reports whether a number is among those that no session goes by, on a page that is
// not free.
func (s *Scan) Swept(number uint64) bool {
	rank, ok := s.unlinked[number]
	return ok && rank > Free
}

// SweptKnown reports whether the tree says all numbers that no session goes by, so that other rows in use are of sessions that
// exist.
func (s *Scan) SweptKnown() bool { return s.Metas == 0 || s.catalog.unlinked.whole }

// noEnd is err, unless all was read that was asked for and the file ended there.
func noEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
