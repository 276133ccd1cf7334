package bolt

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	bbolt "go.etcd.io/bbolt"
)

// mapped is a tree of pages as a transaction found it in the file: that of the buckets, or the
// rows of one. It is read from the memory map that bbolt has. Reading beyond the end of a file
// that was cut off is a fault, of which [recoverDamage] makes an error.
type mapped struct {
	file     []byte // as long as the transaction says
	pageSize uint64
	root     uint64
	inline   []byte // the root, if that stands in the bucket's own entry and root is 0
}

// mappedBy returns the tree of the buckets.
func mappedBy(tx *bbolt.Tx) mapped {
	info := tx.DB().Info()
	start := *(*unsafe.Pointer)(unsafe.Pointer(&info.Data))
	return mapped{file: unsafe.Slice((*byte)(start), tx.Size()), pageSize: uint64(info.PageSize), root: uint64(tx.Cursor().Bucket().Root())}
}

func (m mapped) pages() uint64 { return uint64(len(m.file)) / m.pageSize }

// bucketIn returns the rows of a bucket, and its sequence, of its entry in the tree of buckets.
func (m mapped) bucketIn(e element) (rows mapped, sequence uint64, err error) {
	if e.flags != bucketFlag || len(e.value) < bucketHeaderBytes {
		return rows, 0, fmt.Errorf("%.40q is not a whole bucket", e.key)
	}
	m.root, m.inline = binary.NativeEndian.Uint64(e.value), e.value[bucketHeaderBytes:]
	return m, binary.NativeEndian.Uint64(e.value[8:]), nil
}

// top returns the root.
func (m mapped) top() (node, error) {
	if m.inline != nil && m.root == 0 {
		return nodeOf(0, m.inline)
	}
	return m.node(m.root)
}

// node returns a page with those that it goes on in.
func (m mapped) node(id uint64) (node, error) {
	if id < 2 || id >= m.pages() {
		return node{}, fmt.Errorf("there is no page %d", id)
	}
	page := m.file[id*m.pageSize:]
	overflow, err := overflowOf(page, id, m.pages())
	if err != nil {
		return node{}, fmt.Errorf("page %d: %w", id, err)
	}
	return nodeOf(id, page[:(1+overflow)*m.pageSize])
}

// node is a page that has a form: a leaf with rows, or a branch with keys and pages.
type node struct {
	id    uint64
	data  []byte
	leaf  bool
	count int
}

func nodeOf(id uint64, data []byte) (n node, err error) {
	if len(data) < pageHeaderBytes {
		return n, fmt.Errorf("page %d is cut off", id)
	}
	flags, count := binary.NativeEndian.Uint16(data[8:]), int(binary.NativeEndian.Uint16(data[10:]))
	switch {
	case flags != leafFlag && flags != branchFlag:
		err = fmt.Errorf("page %d has the flags %#x", id, flags)
	case flags == branchFlag && count == 0:
		err = fmt.Errorf("page %d is empty", id)
	case pageHeaderBytes+count*elementBytes > len(data):
		err = fmt.Errorf("page %d goes on beyond its end", id)
	}
	return node{id, data, flags == leafFlag, count}, err
}

// key returns a key alone.
func (n node) key(i int) ([]byte, error) {
	at := pageHeaderBytes + i*elementBytes
	if n.leaf { // the flags come first
		at += 4
	}
	from := uint64(pageHeaderBytes+i*elementBytes) + uint64(binary.NativeEndian.Uint32(n.data[at:]))
	end := from + uint64(binary.NativeEndian.Uint32(n.data[at+4:]))
	if end > uint64(len(n.data)) {
		return nil, n.beyond(i)
	}
	return n.data[from:end:end], nil
}

func (n node) beyond(i int) error { return fmt.Errorf("page %d: element %d is not within it", n.id, i) }

// element is what a page says of a key.
type element struct {
	key   []byte
	child uint64 // of a branch
	value []byte // of a leaf
	flags uint32 // of a leaf
	end   uint64 // in the page
}

func (n node) element(i int) (e element, err error) {
	at := pageHeaderBytes + i*elementBytes
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(n.data[at+4*i:])) }
	from, keyBytes, valueBytes := word(1), word(2), word(3)
	if n.leaf {
		e.flags = uint32(word(0))
	} else {
		from, keyBytes, valueBytes = word(0), word(1), 0
		e.child = binary.NativeEndian.Uint64(n.data[at+8:])
	}
	from += uint64(at)
	value := from + keyBytes
	if e.end = value + valueBytes; e.end > uint64(len(n.data)) {
		return element{}, n.beyond(i)
	}
	e.key, e.value = n.data[from:value:value], n.data[value:e.end:e.end]
	return e, nil
}
