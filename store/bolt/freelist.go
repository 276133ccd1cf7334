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
	ids []uint64 // ascending
	id  uint64   // first page of the list itself
	own uint64   // number of pages of the list itself
}

// readFreelist reads the free list that a meta page refers to. The ids must ascend and must not include the pages of
// the list itself. bbolt can write files without a free list, but this package does not use that option.
func readFreelist(file io.ReaderAt, meta *metaPage) (l freelist, err error) {
	pages := meta.pager(file)
	l.id = meta.Freelist
	fail := func(err error) (freelist, error) {
		return freelist{}, fmt.Errorf("%w: page %d, the list of free pages: %w", backend.ErrDamaged, l.id, err)
	}
	if l.id == math.MaxUint64 {
		return freelist{}, fmt.Errorf("%w: the file has no list of free pages, with which every commit ends", backend.ErrDamaged)
	}
	var flags uint16
	if flags, l.own, err = pages.header(l.id); err != nil {
		return fail(err)
	}
	if flags != freelistFlag {
		return fail(fmt.Errorf("it has flags %#x", flags))
	}
	at := l.id * pages.size
	var head [pageHeaderBytes + 8]byte
	if _, err := file.ReadAt(head[:], int64(at)); err != nil {
		return fail(err)
	}
	from, count := uint64(pageHeaderBytes), uint64(binary.NativeEndian.Uint16(head[10:]))
	if count == math.MaxUint16 { // the count does not fit in the header
		from, count = from+8, binary.NativeEndian.Uint64(head[pageHeaderBytes:])
	}
	if count > pages.high || from+8*count > l.own*pages.size {
		return fail(fmt.Errorf("it counts %d pages of %d, in %d", count, pages.high, l.own))
	}
	data, err := readAt(file, int64(at+from), int(8*count))
	if err != nil {
		return fail(err)
	}
	l.ids = make([]uint64, count)
	last := uint64(1)
	for i := range l.ids {
		id := binary.NativeEndian.Uint64(data[8*i:])
		if id <= last || id >= pages.high || id >= l.id && id < l.id+l.own {
			return fail(fmt.Errorf("it has page %d behind page %d, of %d", id, last, pages.high))
		}
		l.ids[i], last = id, id
	}
	return l, nil
}
