package bolt

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// freelist is the list of free pages after a commit. It includes pages freed by that commit, which readers may still
// use.
type freelist struct {
	ids   []uint64 // ascending
	first uint64   // first page of the list itself
	pages uint64   // number of pages of the list itself
}

// readFreelist reads the free list that a meta page refers to. The ids must ascend and must not include the pages of
// the list itself. bbolt can write files without a free list, but this package does not use that option.
func readFreelist(file io.ReaderAt, meta *metaPage) (l freelist, err error) {
	pages := meta.pager(file)
	l.first = meta.Freelist
	fail := func(err error) (freelist, error) {
		return freelist{}, fmt.Errorf("%w: page %d, the list of free pages: %w", backend.ErrDamaged, l.first, err)
	}
	if l.first == math.MaxUint64 {
		return freelist{}, fmt.Errorf("%w: the file has no list of free pages, although every commit writes one", backend.ErrDamaged)
	}
	var flags uint16
	if flags, l.pages, err = pages.header(l.first); err != nil {
		return fail(err)
	}
	if flags != freelistFlag {
		return fail(fmt.Errorf("its flags are %#x", flags))
	}
	at := l.first * pages.pageSize
	var head [pageHeaderBytes + 8]byte
	if _, err := file.ReadAt(head[:], int64(at)); err != nil {
		return fail(err)
	}
	idsOffset, count := uint64(pageHeaderBytes), uint64(binary.NativeEndian.Uint16(head[10:]))
	if count == math.MaxUint16 { // the header stores MaxUint16 if the count does not fit in 16 bits
		idsOffset, count = idsOffset+8, binary.NativeEndian.Uint64(head[pageHeaderBytes:])
	}
	if count > pages.pageCount || idsOffset+8*count > l.pages*pages.pageSize {
		return fail(fmt.Errorf("it counts %d free pages, but the file has %d pages and the list %d", count, pages.pageCount, l.pages))
	}
	data, err := readAt(file, int64(at+idsOffset), int(8*count))
	if err != nil {
		return fail(err)
	}
	l.ids = make([]uint64, count)
	previous := uint64(1)
	for i := range l.ids {
		id := binary.NativeEndian.Uint64(data[8*i:])
		if id <= previous || id >= pages.pageCount || id >= l.first && id < l.first+l.pages {
			return fail(fmt.Errorf("page %d follows page %d, in a file of %d pages", id, previous, pages.pageCount))
		}
		l.ids[i], previous = id, id
	}
	return l, nil
}
