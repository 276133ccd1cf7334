package bolt

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Forms say what bytes mean to whoever stores them. [ScanFile] believes nothing else.
type Forms struct {
	// Record returns the seq that a record's byte form carries, if the form is one.
	Record func(form []byte) (seq uint64, ok bool)

	// Find returns the first place in bytes at which a record's form may begin, or -1. It
	// may leave out those of which fewer than 16 bytes are there.
	Find func(bytes []byte) int

	// Length returns the length of the record's form that bytes begin with. If they end
	// before that is known, ok is false and n a length above theirs that is needed to go
	// on. n is 0 if it cannot be told.
	Length func(bytes []byte) (n int, ok bool)

	// Value reports whether a form is a shared value's.
	Value func(form []byte) bool

	// MaxBytes is how long a form may be.
	MaxBytes int
}

// Rank says how a page stands to the newest commit that the file names.
type Rank uint8

const (
	Free    Rank = iota // the list of free pages has it: what it holds is of earlier commits, or of one that failed
	Unknown             // nothing says whether it is in use
	InUse               // the tree leads to it
)

// Scan is what a file holds, whatever its tree says of it. What has no checksum, or a
// wrong one, is not in it. Pages of earlier commits are read too: most things are there
// several times, and some are outdated or deleted.
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
	// Broken are numbers of pages that should be in use and are not in form, ascending. No
	// more than [MaxBroken] of them are kept.
	Broken []uint64
	// BrokenPages is how many there are.
	BrokenPages int
	// Unread is how many bytes could not be read from the disk.
	Unread int64
	// Metas is how many of the two meta pages are whole.
	Metas int
	// FreeKnown says that the list of free pages was read, and that no commit is missing
	// from it.
	FreeKnown bool

	catalog  catalog
	unlinked map[uint64]Rank
}

// MaxBroken is how many broken pages a [Scan] names.
const MaxBroken = 1000

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

// Standing is what the file says of whether there is a session of some number.
type Standing int

const (
	Unsaid   Standing = iota // what would say so cannot be read
	There                    // it is there
	Later                    // its number had not been given out yet; a later commit may have
	Gone                     // it was deleted, or never finished
	Disputed                 // different things are said
)

// ScanFile reads a bbolt file of any state page by page, and after that, what no page told,
// byte by byte, and reports what it holds. It takes memory for what it finds, about 40
// bytes for each copy of a record, and for the largest form; time linear in the file's
// size, whatever is in it. The error is that of the context, or says that the file has no size that
// can be read.
func ScanFile(ctx context.Context, file io.ReaderAt, size int64, forms Forms) (*Scan, error) {
	s := &scanner{
		src: newSource(file, size), forms: forms,
		out:     &Scan{unlinked: map[uint64]Rank{}},
		entries: map[ScannedEntry]ScannedEntry{}, heads: map[ScannedHead]Rank{}, values: map[ScannedValue]ScannedValue{},
		names: map[string]bool{},
	}
	s.survey(file)
	if err := s.tables(ctx); err != nil {
		return nil, err
	}
	slices.SortFunc(s.out.Records, func(a, b ScannedRecord) int { return cmp.Compare(a.At, b.At) })
	if err := s.between(ctx); err != nil {
		return nil, err
	}
	s.finish()
	return s.out, nil
}

// Read returns a record's form. It is the caller's own.
func (s *Scan) Read(file io.ReaderAt, r ScannedRecord) ([]byte, error) {
	form := make([]byte, r.Size)
	_, err := file.ReadAt(form, r.At)
	return form, noEnd(err)
}

// ReadEntry returns the creation id and the meta that an entry holds.
func (s *Scan) ReadEntry(file io.ReaderAt, e ScannedEntry) (creation string, meta []byte, err error) {
	entry := make([]byte, e.size)
	if _, err := file.ReadAt(entry, e.at); noEnd(err) != nil {
		return "", nil, err
	}
	of, _ := decodeEntry(entry) // which the scan has done
	return of.creation, of.meta, nil
}

// ReadValue returns a shared value's form.
func (s *Scan) ReadValue(file io.ReaderAt, v ScannedValue) ([]byte, error) {
	form := make([]byte, v.size)
	_, err := file.ReadAt(form, v.at)
	return form, noEnd(err)
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

// noEnd is err, unless all was read that was asked for and the file ended there.
func noEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
