package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// A bbolt file begins with two meta pages. Each has the number of a transaction, the root of the tree after that
// transaction, and a checksum. A commit overwrites the older meta page. bbolt uses the newer page with a valid
// checksum and does not report damage of the other page.
const metaMagic = 0xED0CDAED

// metaPage is a meta page and its offset in the file.
type metaPage struct {
	at    int64
	bytes [pageHeaderBytes + 64]byte
	metaFields
}

// metaFields follow the header of the page.
type metaFields struct {
	Magic, Version, PageSize, Flags       uint32
	Root, Sequence, Freelist, Pages, Txid uint64 // Pages is the number of pages in the file
	Sum                                   uint64 // FNV-1a of the preceding fields
}

// isValid reports whether the checksum and the page size are valid.
func (m *metaPage) isValid() bool {
	sum := fnv.New64a()
	_, _ = sum.Write(m.bytes[pageHeaderBytes : len(m.bytes)-8])
	return m.Magic == metaMagic && m.PageSize >= 1<<10 && m.PageSize <= 1<<24 && m.Sum == sum.Sum64()
}

func (m *metaPage) pager(file io.ReaderAt) pager { return pager{file, uint64(m.PageSize), m.Pages} }

type metaPages [2]metaPage

// readMetas reads the meta pages. Bytes beyond the end of the file count as zero.
func readMetas(file io.ReaderAt) (m metaPages, err error) {
	read := func(i int, at int64) error {
		m[i] = metaPage{at: at}
		if _, err := file.ReadAt(m[i].bytes[:], at); ignoreEOF(err) != nil {
			return err
		}
		_, err := binary.Decode(m[i].bytes[pageHeaderBytes:], binary.NativeEndian, &m[i].metaFields)
		return err
	}
	if err := read(0, 0); err != nil {
		return m, err
	}
	if m[0].isValid() {
		return m, read(1, int64(m[0].PageSize))
	}
	// The second meta page begins one page after the beginning of the file and contains the page size. Any power of
	// two from 1 KiB to 16 MiB may be the page size.
	for at := int64(1 << 10); at <= 1<<24; at <<= 1 {
		if err := read(1, at); err != nil {
			return m, err
		}
		if m[1].isValid() && int64(m[1].PageSize) == at {
			break
		}
	}
	return m, nil
}

// current returns the page that bbolt uses, or nil.
func (m *metaPages) current() *metaPage {
	var newest *metaPage
	for i := range m {
		if p := &m[i]; p.isValid() && (newest == nil || p.Txid > newest.Txid) {
			newest = p
		}
	}
	return newest
}

// damage returns an error if one of the two meta pages is damaged. The damaged page may be the page that was written
// last.
func (m *metaPages) damage() error {
	current := m.current()
	for i := range m {
		damaged := &m[i]
		if current == nil || damaged.isValid() {
			continue
		}
		consequence := "the last commit may be missing; a power failure during an unacknowledged commit leaves the same damage"
		if damaged.Txid+1 == current.Txid {
			consequence = "the damaged page is the older one, so nothing is missing"
		}
		return fmt.Errorf("%w: meta page %d of transaction %d is damaged; the file is read as of transaction %d: %s",
			backend.ErrDamaged, i, damaged.Txid, current.Txid, consequence)
	}
	return nil
}
