package bolt

import (
	"encoding/binary"
	"fmt"
	"io"
)

// bbolt's pages have no checksum, but they have a form: a page says its own number, and
// keys and values stand without a gap behind the elements that say where. A header with
// another count is out of form, one that counts nothing too, so that what is there cannot
// pass for empty.
const (
	pageHeaderBytes   = 16 // id 8, flags 2, count 2, overflow 4
	elementBytes      = 16
	branchFlag        = 1
	leafFlag          = 2
	bucketFlag        = 1  // of a leaf's element
	bucketHeaderBytes = 16 // page of the root, sequence; the root itself follows if that page is 0
)

// overflowOf returns for how many pages more a page goes on, as its header says, which must
// be that of page id. high is how many pages there are.
func overflowOf(header []byte, id, high uint64) (uint64, error) {
	own, overflow := binary.NativeEndian.Uint64(header), uint64(binary.NativeEndian.Uint32(header[12:]))
	if own != id || overflow >= high-id {
		return 0, fmt.Errorf("it says that it is page %d and goes on for %d more, of %d", own, overflow, high)
	}
	return overflow, nil
}

// entry is what a page holds at a place: in a leaf key and value, in a branch key and page.
type entry struct {
	flags      uint32
	key, value []byte
	page       uint64
}

// entries reads a leaf or a branch, which begins with its header and may be longer than
// what it holds. end is where that ends.
func entries(page []byte) (branch bool, out []entry, end int, err error) {
	flags, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	if flags != branchFlag && flags != leafFlag {
		return false, nil, 0, fmt.Errorf("a page with flags %#x", flags)
	}
	branch = flags == branchFlag
	end = pageHeaderBytes + count*elementBytes
	if end > len(page) || branch && count == 0 {
		return branch, nil, 0, fmt.Errorf("a page of %d bytes that counts %d entries", len(page), count)
	}
	for i := range count {
		at := pageHeaderBytes + i*elementBytes
		word := func(i int) uint32 { return binary.NativeEndian.Uint32(page[at+4*i:]) }
		e := entry{flags: word(0)}
		pos, keyLen, valueLen := uint64(word(1)), uint64(word(2)), uint64(word(3))
		if branch {
			pos, keyLen, valueLen = uint64(word(0)), uint64(word(1)), 0
			e.flags, e.page = 0, binary.NativeEndian.Uint64(page[at+8:])
		}
		if uint64(at)+pos != uint64(end) || uint64(end)+keyLen+valueLen > uint64(len(page)) {
			return branch, nil, 0, fmt.Errorf("entry %d of %d stands at byte %d with %d bytes, not at byte %d of %d", i, count, uint64(at)+pos, keyLen+valueLen, end, len(page))
		}
		e.key, e.value = page[end:end+int(keyLen)], page[end+int(keyLen):end+int(keyLen+valueLen)]
		out = append(out, e)
		end += int(keyLen + valueLen)
	}
	if count == 0 {
		for _, b := range page[end:min(end+elementBytes, len(page))] {
			if b != 0 {
				return branch, nil, 0, fmt.Errorf("a page that counts no entry, but holds some")
			}
		}
	}
	return branch, out, end, nil
}

// pages reads the pages of a transaction from the file.
type pages struct {
	file io.ReaderAt
	size uint64 // of a page
	high uint64 // how many there are
	free func(id uint64) bool
	seen map[uint64]bool // a page belongs to one place
	took uint64          // how many have been read, with those that they go on for
}

func pagesOf(tx *txn, file io.ReaderAt, free func(id uint64) bool) *pages {
	size := uint64(tx.DB().Info().PageSize)
	return &pages{file: file, size: size, high: uint64(tx.Size()) / size, free: free, seen: map[uint64]bool{}}
}

// read returns the page with the given number, which must be in use, in form and read
// for the first time.
func (p *pages) read(id uint64) (branch bool, out []entry, err error) {
	fail := func(err error) (bool, []entry, error) { return false, nil, fmt.Errorf("page %d: %w", id, err) }
	if id < 2 || id >= p.high {
		return fail(fmt.Errorf("there are pages 2 to %d", p.high-1))
	}
	if p.seen[id] {
		return fail(fmt.Errorf("it is reached by two ways"))
	}
	p.seen[id] = true
	if p.free(id) {
		return fail(fmt.Errorf("it is in use and on the list of free pages"))
	}
	header := make([]byte, pageHeaderBytes)
	if _, err := p.file.ReadAt(header, int64(id*p.size)); err != nil {
		return fail(err)
	}
	overflow, err := overflowOf(header, id, p.high)
	if err != nil {
		return fail(err)
	}
	p.took += overflow + 1
	page := make([]byte, (overflow+1)*p.size)
	if _, err := p.file.ReadAt(page, int64(id*p.size)); err != nil {
		return fail(err)
	}
	branch, out, end, err := entries(page)
	if err == nil && uint64(end-1)/p.size != overflow {
		err = fmt.Errorf("it holds %d bytes and goes on for %d pages", end, overflow)
	}
	if err != nil {
		return fail(err)
	}
	return branch, out, nil
}

// roots checks the pages that lead to the buckets, and each bucket's own root. Deeper
// pages are looked at by [Backend.Check].
func (p *pages) roots(id uint64) error {
	branch, all, err := p.read(id)
	if err != nil {
		return err
	}
	for _, e := range all {
		if branch {
			err = p.roots(e.page)
		} else if root, _, bucketErr := bucketOf(e); bucketErr != nil {
			err = bucketErr
		} else if root != 0 {
			_, _, err = p.read(root)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucketOf returns the page of a bucket's root, or, if that is 0, what the root holds that
// stands in the bucket's own entry.
func bucketOf(e entry) (root uint64, inline []entry, err error) {
	if e.flags != bucketFlag || len(e.value) < bucketHeaderBytes {
		return 0, nil, fmt.Errorf("bucket %.40q: flags %#x and %d bytes", e.key, e.flags, len(e.value))
	}
	page := e.value[bucketHeaderBytes:]
	if root = binary.NativeEndian.Uint64(e.value); root != 0 {
		if len(page) != 0 {
			err = fmt.Errorf("a bucket with its root in page %d has %d bytes more", root, len(page))
		}
		return root, nil, err
	}
	if len(page) < pageHeaderBytes {
		return 0, nil, fmt.Errorf("a bucket without a root")
	}
	branch, inline, end, err := entries(page)
	if err == nil && (branch || end != len(page)) {
		err = fmt.Errorf("a bucket's root of %d bytes holds %d", len(page), end)
	}
	return 0, inline, err
}
