package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sort"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// freelist is the list of free pages that a commit has left. A page that was in use before the
// commit is on it, though a reader may still be reading it.
type freelist struct {
	ids []byte // eight bytes each, ascending
	id  uint64 // the page of the list itself
	own uint64 // how many pages that takes up
}

// findFreelist finds the list that a meta page names, and where its ids stand in the file. high is how
// many pages there are. A file without a list, as bbolt can be told to write, is none of ours.
func findFreelist(file io.ReaderAt, meta *metaPage, high uint64) (l freelist, ids *io.SectionReader, err error) {
	id, size := meta.freelist(), uint64(meta.pageSize())
	fail := func(err error) (freelist, *io.SectionReader, error) {
		return freelist{}, nil, fmt.Errorf("%w: page %d, the list of free pages: %w", backend.ErrDamaged, id, err)
	}
	switch {
	case id == math.MaxUint64:
		return freelist{}, nil, fmt.Errorf("%w: the file has no list of free pages, with which every commit ends", backend.ErrDamaged)
	case id < 2 || id >= high:
		return fail(fmt.Errorf("there are pages 2 to %d", high-1))
	}
	header := make([]byte, pageHeaderBytes+8)
	if _, err := file.ReadAt(header, int64(id*size)); err != nil {
		return fail(err)
	}
	overflow, err := overflowOf(header, id, high)
	if err != nil {
		return fail(err)
	}
	if flags := binary.NativeEndian.Uint16(header[8:]); flags != freelistFlag {
		return fail(fmt.Errorf("it has flags %#x", flags))
	}
	at, count := uint64(pageHeaderBytes), uint64(binary.NativeEndian.Uint16(header[10:]))
	if count == math.MaxUint16 { // it did not fit
		at, count = at+8, binary.NativeEndian.Uint64(header[pageHeaderBytes:])
	}
	if count > high || at+8*count > (overflow+1)*size {
		return fail(fmt.Errorf("it counts %d pages of %d, in %d", count, high, overflow+1))
	}
	return freelist{id: id, own: overflow + 1}, io.NewSectionReader(file, int64(id*size+at), int64(8*count)), nil
}

// readFreelist reads the list that a meta page names.
func readFreelist(file io.ReaderAt, meta *metaPage, high uint64) (freelist, error) {
	l, ids, err := findFreelist(file, meta, high)
	if err != nil {
		return freelist{}, err
	}
	l.ids = make([]byte, ids.Size())
	if _, err := io.ReadFull(ids, l.ids); err != nil {
		return freelist{}, fmt.Errorf("%w: page %d, the list of free pages: %w", backend.ErrDamaged, l.id, err)
	}
	return l, nil
}

// freeSum tells a list of free pages from another one.
type freeSum struct {
	own uint64
	ids uint32
}

// freeSumOf reads the list that a meta page names, and keeps none of it.
func freeSumOf(file io.ReaderAt, meta *metaPage) (freeSum, error) {
	l, ids, err := findFreelist(file, meta, meta.pages())
	if err != nil {
		return freeSum{}, err
	}
	sum := crc32.New(castagnoli)
	_, err = io.CopyBuffer(sum, ids, make([]byte, min(ids.Size(), 64<<10)+1))
	return freeSum{l.own, sum.Sum32()}, err
}

func (l freelist) len() int        { return len(l.ids) / 8 }
func (l freelist) at(i int) uint64 { return binary.NativeEndian.Uint64(l.ids[8*i:]) }

// isIts reports whether the list takes up a page itself, which it will give back.
func (l freelist) isIts(id uint64) bool { return id >= l.id && id < l.id+l.own }

func (l freelist) has(id uint64) bool {
	i := sort.Search(l.len(), func(i int) bool { return l.at(i) >= id })
	return i < l.len() && l.at(i) == id
}

// check reports whether the list has each page once, in order, and none of its own.
func (l freelist) check(high uint64) error {
	last := uint64(1)
	for i := range l.len() {
		id := l.at(i)
		if l.isIts(id) {
			return fmt.Errorf("%w: the list of free pages has page %d, and takes that up itself", backend.ErrDamaged, id)
		}
		if id <= last || id >= high {
			return fmt.Errorf("%w: the list of free pages has page %d behind page %d, of %d", backend.ErrDamaged, id, last, high)
		}
		last = id
	}
	return nil
}
