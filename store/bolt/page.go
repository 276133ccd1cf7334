package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Two callers use the code in this file to decode the pages of a bbolt file: the checks of Open and Check, and
// salvage. All other reads and writes go through bbolt.
//
// Pages have no checksum, but their form can be checked. A page contains its own number, and the keys and values
// follow the array of elements without gaps. A wrong count of elements, even 0, violates this form.
const (
	pageHeaderBytes   = 16 // id (8), flags (2), count (2), overflow (4)
	elementBytes      = 16
	branchFlag        = 1
	leafFlag          = 2
	freelistFlag      = 16
	bucketFlag        = 1  // flag of an element in a leaf
	bucketHeaderBytes = 16 // number of the root page, and sequence; if the number is 0, the root itself follows

	maxDepth = 64 // maximum depth of a tree; a deeper tree has a cycle
)

// page is a leaf or branch page.
type page struct {
	id       uint64
	pages    uint64 // number of pages, including overflow pages
	branch   bool
	elements []element
}

// element is an element of a page. It has a key, and in a leaf a value, in a branch a child page.
type element struct {
	key, value []byte
	flags      uint32 // used only in a leaf
	at         int    // offset of the value in the page
	child      uint64 // used only in a branch
}

// decodePage decodes a leaf or branch page from data, which begins with the page header. The result end is the offset
// at which the content of the page ends.
func decodePage(data []byte) (p page, end int, err error) {
	if len(data) < pageHeaderBytes {
		return p, 0, fmt.Errorf("the page has only %d bytes", len(data))
	}
	flags, count := binary.NativeEndian.Uint16(data[8:]), int(binary.NativeEndian.Uint16(data[10:]))
	if flags != branchFlag && flags != leafFlag {
		return p, 0, fmt.Errorf("its flags are %#x", flags)
	}
	p.branch = flags == branchFlag
	end = pageHeaderBytes + count*elementBytes
	if end > len(data) || p.branch && count == 0 {
		return p, 0, fmt.Errorf("its header counts %d elements, which do not fit in %d bytes", count, len(data))
	}
	p.elements = make([]element, count)
	for i := range p.elements {
		at := pageHeaderBytes + i*elementBytes
		word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(data[at+4*i:])) }
		e := &p.elements[i]
		pos, keyBytes, valueBytes := word(1), word(2), word(3)
		if p.branch {
			pos, keyBytes, valueBytes = word(0), word(1), 0
			e.child = binary.NativeEndian.Uint64(data[at+8:])
		} else {
			e.flags = uint32(word(0))
		}
		if uint64(at)+pos != uint64(end) || uint64(end)+keyBytes+valueBytes > uint64(len(data)) || keyBytes == 0 {
			return p, 0, fmt.Errorf("element %d of %d has offset %d and length %d, but should have offset %d in a page of %d bytes", i, count, uint64(at)+pos, keyBytes+valueBytes, end, len(data))
		}
		e.at = end + int(keyBytes)
		e.key, e.value = data[end:e.at:e.at], data[e.at:e.at+int(valueBytes)]
		end = e.at + int(valueBytes)
	}
	if count == 0 && len(bytes.Trim(data[end:min(end+elementBytes, len(data))], "\x00")) > 0 {
		return p, 0, errors.New("its header counts no elements, but it has some")
	}
	return p, end, nil
}

type pager struct {
	file      io.ReaderAt
	pageSize  uint64 // page size
	pageCount uint64 // number of pages
}

// header reads the header of a page and returns the flags and the number of pages, including overflow pages.
func (p pager) header(id uint64) (flags uint16, pages uint64, err error) {
	var header [pageHeaderBytes]byte
	if id < 2 || id >= p.pageCount {
		return 0, 0, fmt.Errorf("the file has only pages 2 to %d", p.pageCount-1)
	}
	if _, err := p.file.ReadAt(header[:], int64(id*p.pageSize)); err != nil {
		return 0, 0, err
	}
	storedID, overflow := binary.NativeEndian.Uint64(header[:]), uint64(binary.NativeEndian.Uint32(header[12:]))
	if storedID != id || overflow >= p.pageCount-id {
		return 0, 0, fmt.Errorf("its header has page number %d and %d overflow pages, in a file of %d pages", storedID, overflow, p.pageCount)
	}
	return binary.NativeEndian.Uint16(header[8:]), overflow + 1, nil
}

// read reads a leaf or branch page. Its content must fill exactly the number of pages in its header.
func (p pager) read(id uint64) (page, error) {
	_, pages, err := p.header(id)
	if err != nil {
		return page{}, err
	}
	data := make([]byte, pages*p.pageSize)
	if _, err := p.file.ReadAt(data, int64(id*p.pageSize)); err != nil {
		return page{}, err
	}
	out, end, err := decodePage(data)
	if err == nil && uint64(end+int(p.pageSize)-1)/p.pageSize != pages {
		err = fmt.Errorf("its content has %d bytes, but its header counts %d pages", end, pages)
	}
	out.id, out.pages = id, pages
	return out, err
}

// checkOverflow returns an error if a row that extends into the overflow pages of a leaf is damaged. Overflow pages
// have no header. If the leaf's header is from an earlier commit, the overflow pages may now belong to another tree.
// bbolt would free those pages together with the leaf.
func (p page) checkOverflow(pageSize uint64) error {
	for _, e := range p.elements {
		if uint64(e.at+len(e.value)) > pageSize && !isSealed(e.key, e.value) {
			return fmt.Errorf("key %.64x, whose row extends into page %d: the checksum is wrong", e.key, p.id+1)
		}
	}
	return nil
}

// bucketRoot returns the page number of a bucket's root. If the number is 0, it returns the inline root, which is in
// the bucket's element.
func bucketRoot(e element) (root uint64, inline page, err error) {
	if e.flags != bucketFlag || len(e.value) < bucketHeaderBytes {
		return 0, page{}, fmt.Errorf("bucket %.40q: flags %#x and %d bytes", e.key, e.flags, len(e.value))
	}
	data := e.value[bucketHeaderBytes:]
	if root = binary.NativeEndian.Uint64(e.value); root != 0 {
		if len(data) != 0 {
			err = fmt.Errorf("bucket %.40q has its root in page %d, but is followed by %d bytes", e.key, root, len(data))
		}
		return root, page{}, err
	}
	inline, end, err := decodePage(data)
	if err == nil && (inline.branch || end != len(data)) {
		err = fmt.Errorf("the inline root of bucket %.40q has %d bytes, but its content has %d", e.key, len(data), end)
	}
	if err == nil {
		err = inline.checkOrder(bounds{})
	}
	return 0, inline, err
}

// bounds are the limits that the parent sets for the keys of a page. No key is less than first, and all keys are
// less than end. nil means no limit.
type bounds struct{ first, end []byte }

// checkOrder returns an error unless the keys ascend and are within the bounds.
func (p page) checkOrder(b bounds) error {
	if len(p.elements) > 0 && b.first != nil && !bytes.Equal(p.elements[0].key, b.first) {
		return fmt.Errorf("its first key is %.64x, but should be %.64x", p.elements[0].key, b.first)
	}
	for i, e := range p.elements {
		if end := p.boundsOfChild(i, b).end; end != nil && bytes.Compare(e.key, end) >= 0 {
			return fmt.Errorf("key %.64x is out of order", e.key)
		}
	}
	return nil
}

// boundsOfChild returns the bounds of the child of element i.
func (p page) boundsOfChild(i int, b bounds) bounds {
	if i+1 < len(p.elements) {
		return bounds{p.elements[i].key, p.elements[i+1].key}
	}
	return bounds{p.elements[i].key, b.end}
}

type walker struct {
	pager
	claim     func(id, pages uint64) error // if not nil, called for each page, which is invalid if claim fails
	visit     func(p page, i int) bool     // if not nil, reports whether to visit child i
	leaf      func(p page) error           // called for each leaf; if nil, leaves below branches are claimed but not read
	onInvalid func(id uint64, err error)   // called for each invalid page; the walk continues with the siblings
}

// walk visits a page and its descendants. It reports whether all of them are valid and in order. If the keys of every
// page ascend within the bounds of its parent, no page is reached twice.
func (w *walker) walk(id uint64, b bounds, depth int) (valid bool) {
	p, err := w.read(id)
	switch {
	case err != nil:
	case depth > maxDepth:
		err = errors.New("it is part of a cycle")
	case len(p.elements) == 0 && depth > 0:
		err = errors.New("it is empty")
	default:
		err = p.checkOrder(b)
	}
	if err == nil && w.claim != nil {
		err = w.claim(id, p.pages)
	}
	if err == nil && !p.branch && w.leaf != nil {
		err = w.leaf(p)
	}
	if err != nil {
		w.onInvalid(id, fmt.Errorf("page %d: %w", id, err))
		return false
	}
	if !p.branch {
		return true
	}
	skipLeaves := w.leaf == nil && w.hasLeafChildren(p)
	valid = true
	for i, e := range p.elements {
		childBounds := p.boundsOfChild(i, b)
		switch {
		case w.visit != nil && !w.visit(p, i):
		case !skipLeaves:
			valid = w.walk(e.child, childBounds, depth+1) && valid
		default:
			if err := w.claim(e.child, 1); err != nil {
				w.onInvalid(e.child, fmt.Errorf("page %d: %w", e.child, err))
				valid = false
			}
		}
	}
	return valid
}

// hasLeafChildren reports whether the children of a branch are leaves. All leaves of a bucket have the same depth, so
// one valid leaf is enough. hasLeafChildren reads the first three children, in case some are damaged.
func (w *walker) hasLeafChildren(p page) bool {
	for _, e := range p.elements[:min(3, len(p.elements))] {
		if flags, _, err := w.header(e.child); err == nil && flags == leafFlag {
			return true
		}
	}
	return false
}
