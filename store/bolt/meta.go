package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// A bbolt file begins with two meta pages. Each holds the number of a transaction, the root of its tree, and a checksum.
// A commit overwrites the older one. bbolt uses the newer one whose checksum is right, and does not report that the
// other one is damaged.
const (
	metaMagic    = 0xED0CDAED
	metaPageSize = pageHeaderBytes + 8 // offset of the page size
	metaRoot     = pageHeaderBytes + 16
	metaFreelist = pageHeaderBytes + 32
	metaHigh     = pageHeaderBytes + 40
	metaTxid     = pageHeaderBytes + 48
	metaSum      = pageHeaderBytes + 56
	metaEnd      = metaSum + 8
)

// metaPage is a meta page and its offset.
type metaPage struct {
	at    int64 // in the file
	bytes [metaEnd]byte
}

func (m *metaPage) txid() uint64     { return binary.NativeEndian.Uint64(m.bytes[metaTxid:]) }
func (m *metaPage) pageSize() uint32 { return binary.NativeEndian.Uint32(m.bytes[metaPageSize:]) }
func (m *metaPage) pages() uint64    { return binary.NativeEndian.Uint64(m.bytes[metaHigh:]) }
func (m *metaPage) root() uint64     { return binary.NativeEndian.Uint64(m.bytes[metaRoot:]) }
func (m *metaPage) freelist() uint64 { return binary.NativeEndian.Uint64(m.bytes[metaFreelist:]) }

func (m *metaPage) pager(file io.ReaderAt) pager {
	return pager{file, uint64(m.pageSize()), m.pages()}
}

// whole reports whether the checksum and the page size are right.
func (m *metaPage) whole() bool {
	sum := fnv.New64a()
	_, _ = sum.Write(m.bytes[pageHeaderBytes:metaSum])
	return binary.NativeEndian.Uint32(m.bytes[pageHeaderBytes:]) == metaMagic && m.pageSize() >= 1<<10 && m.pageSize() <= 1<<24 &&
		binary.NativeEndian.Uint64(m.bytes[metaSum:]) == sum.Sum64()
}

type metaPages [2]metaPage

// readMetas reads the meta pages. Bytes behind the end of the file are zero.
func readMetas(file io.ReaderAt) (m metaPages, err error) {
	read := func(i int, at int64) error {
		m[i] = metaPage{at: at}
		if _, err := file.ReadAt(m[i].bytes[:], at); err != nil && err != io.EOF {
			return err
		}
		return nil
	}
	if err := read(0, 0); err != nil {
		return m, err
	}
	if m[0].whole() {
		return m, read(1, int64(m[0].pageSize()))
	}
	// The second page says the size of pages, and stands where that says.
	for at := int64(1 << 10); at <= 1<<24; at <<= 1 {
		if err := read(1, at); err != nil {
			return m, err
		}
		if m[1].whole() && int64(m[1].pageSize()) == at {
			break
		}
	}
	return m, nil
}

// current returns the page that bbolt uses, or nil.
func (m *metaPages) current() *metaPage {
	var newest *metaPage
	for i := range m {
		if p := &m[i]; p.whole() && (newest == nil || p.txid() > newest.txid()) {
			newest = p
		}
	}
	return newest
}

// doubt returns an error if one of the pages is damaged: then the other may not be the
// one that was written last.
func (m *metaPages) doubt() error {
	good := m.current()
	for i := range m {
		bad := &m[i]
		if good == nil || bad.whole() {
			continue
		}
		missing := "the last commit may be missing; a power failure in the middle of a commit, which was then not acknowledged, leaves the same trace"
		if bad.txid()+1 == good.txid() {
			missing = "by that it is the older one, and nothing is missing"
		}
		return fmt.Errorf("%w: meta page %d, which says that it is of transaction %d; the file is read as transaction %d left it: %s",
			backend.ErrDamaged, i, bad.txid(), good.txid(), missing)
	}
	return nil
}
