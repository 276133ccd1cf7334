package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// A write goes down from the root to the leaf of a key, and writes all these pages anew.
// If one of them is not what its parent takes it for, bbolt frees pages that are in use,
// or puts keys where nothing finds them, and damage spreads to what was whole. So the way
// is looked over before it is written to for the first time.

const maxDepth = 64 // of a tree; a deeper one goes in a circle

// paths looks pages over as they are on disk. Whatever a page says, reading the file does
// not fault.
type paths struct {
	file  *os.File
	size  uint64 // of a page
	pages uint64
	root  uint64
	free  func(id uint64) bool // as a writing transaction knows it
}

// pathsOf returns the paths of the file as the transaction found it.
func pathsOf(tx *bbolt.Tx, file *os.File) paths {
	size := uint64(tx.DB().Info().PageSize)
	free := func(id uint64) bool {
		if !tx.Writable() { // who writes meanwhile may free what this one sees
			return false
		}
		p, err := tx.Page(int(id))
		return err == nil && p != nil && p.Type == "free"
	}
	return paths{file, size, uint64(tx.Size()) / size, uint64(tx.Cursor().Bucket().Root()), free}
}

// checkPaths calls check with the paths of the file as the transaction found it. The
// caller is within use.
func (b *Backend) checkPaths(tx *bbolt.Tx, check func(p paths) error) error {
	err := check(pathsOf(tx, b.handle.file))
	if errors.Is(err, os.ErrClosed) && b.handle.abandoned() {
		return b.handle.lost
	}
	return err
}

// sound reports whether the ways to the keys of a bucket that begin with prefix, and to
// prefix itself, are whole.
func (p paths) sound(bucket *bbolt.Bucket, name, prefix []byte) error {
	err := p.visit(p.root, bounds{}, name, false, func(inline []byte) error {
		if root := uint64(bucket.Root()); root != 0 {
			return p.visit(root, bounds{}, prefix, true, nil)
		}
		return p.look(page{data: inline, size: uint64(len(inline))}, bounds{}, prefix, true, nil, 0)
	})
	if err != nil {
		return fmt.Errorf("%w: the way to key %.64x of bucket %q: %w", backend.ErrDamaged, prefix, name, err)
	}
	return nil
}

// bounds are what a page's parent says of its keys: the first one, and one that is above
// all. nil is no bound.
type bounds struct{ first, end []byte }

// page is a page, or the page of a small bucket inside another one's value.
type page struct {
	id   uint64
	data []byte // its beginning
	size uint64
}

// read reads a page. Of one with a long value it leaves out the values.
func (p paths) read(id uint64) (page, error) {
	if id < 2 || id >= p.pages {
		return page{}, fmt.Errorf("there is no page %d", id)
	}
	if p.free(id) {
		return page{}, fmt.Errorf("page %d is in use and on the list of free pages", id)
	}
	data := make([]byte, p.size)
	if _, err := p.file.ReadAt(data, int64(id*p.size)); err != nil {
		return page{}, err
	}
	overflow, err := overflowOf(data, id, p.pages)
	if err != nil {
		return page{}, fmt.Errorf("page %d: %w", id, err)
	}
	return page{id: id, data: data, size: p.size * (1 + overflow)}, nil
}

// bytes returns a part of the page.
func (p paths) bytes(g page, at, n uint64) ([]byte, error) {
	switch {
	case at+n > g.size:
		return nil, fmt.Errorf("page %d goes on beyond its end", g.id)
	case at+n <= uint64(len(g.data)):
		return g.data[at : at+n], nil
	}
	out := make([]byte, n)
	_, err := p.file.ReadAt(out, int64(g.id*p.size+at))
	return out, err
}

func (p paths) visit(id uint64, b bounds, prefix []byte, flat bool, inline func([]byte) error) error {
	return p.visitAt(id, b, prefix, flat, inline, 0)
}

func (p paths) visitAt(id uint64, b bounds, prefix []byte, flat bool, inline func([]byte) error, depth int) error {
	g, err := p.read(id)
	if err != nil {
		return err
	}
	return p.look(g, b, prefix, flat, inline, depth)
}

// element is what a page says of a key.
type element struct {
	key   []byte
	child uint64 // of a branch
	value uint64 // of a leaf: where its value is
	size  uint64
	flags uint32
}

// elements returns what the page holds.
func (p paths) elements(g page) (out []element, leaf bool, err error) {
	if len(g.data) < pageHeaderBytes {
		return nil, false, fmt.Errorf("page %d is cut off", g.id)
	}
	flags, count := binary.NativeEndian.Uint16(g.data[8:]), uint64(binary.NativeEndian.Uint16(g.data[10:]))
	if leaf = flags == leafFlag; !leaf && flags != branchFlag {
		return nil, false, fmt.Errorf("page %d has the flags %#x", g.id, flags)
	}
	table, err := p.bytes(g, pageHeaderBytes, count*elementBytes)
	if err != nil {
		return nil, false, err
	}
	out = make([]element, 0, count)
	for i := range count {
		e, at := table[i*elementBytes:], pageHeaderBytes+i*elementBytes
		var el element
		var keyBytes uint64
		if leaf {
			el.flags = binary.NativeEndian.Uint32(e)
			at += uint64(binary.NativeEndian.Uint32(e[4:]))
			keyBytes, el.size = uint64(binary.NativeEndian.Uint32(e[8:])), uint64(binary.NativeEndian.Uint32(e[12:]))
			el.value = at + keyBytes
		} else {
			at += uint64(binary.NativeEndian.Uint32(e))
			keyBytes, el.child = uint64(binary.NativeEndian.Uint32(e[4:])), binary.NativeEndian.Uint64(e[8:])
		}
		if at < pageHeaderBytes+count*elementBytes || at+keyBytes+el.size > g.size || keyBytes == 0 {
			return nil, false, fmt.Errorf("page %d: element %d is not within it", g.id, i)
		}
		if el.key, err = p.bytes(g, at, keyBytes); err != nil {
			return nil, false, err
		}
		out = append(out, el)
	}
	return out, leaf, nil
}

// look looks a page over, and those below it to which the prefix leads.
func (p paths) look(g page, b bounds, prefix []byte, flat bool, inline func([]byte) error, depth int) error {
	elements, leaf, err := p.elements(g)
	switch {
	case err != nil:
		return err
	case depth > maxDepth:
		return fmt.Errorf("page %d is reached in a circle", g.id)
	case len(elements) == 0 && (!leaf || depth > 0):
		return fmt.Errorf("page %d is empty", g.id)
	case len(elements) > 0 && b.first != nil && !bytes.Equal(elements[0].key, b.first):
		return fmt.Errorf("page %d begins with key %.64x, and should with %.64x", g.id, elements[0].key, b.first)
	}
	past := false               // a child beyond the prefix has been looked at
	leads := func(i int) bool { // to keys that are not before the prefix
		if i+1 < len(elements) {
			return bytes.Compare(elements[i+1].key, prefix) > 0
		}
		return i < len(elements) && (b.end == nil || bytes.Compare(b.end, prefix) > 0)
	}
	for i, e := range elements {
		end := b.end
		if i+1 < len(elements) {
			end = elements[i+1].key
		}
		if end != nil && bytes.Compare(e.key, end) >= 0 {
			return fmt.Errorf("page %d: key %.64x is out of order", g.id, e.key)
		}
		switch {
		case leaf && flat != (e.flags == 0):
			return fmt.Errorf("page %d: key %.64x has the flags %#x", g.id, e.key, e.flags)
		case leaf && !flat && bytes.Equal(e.key, prefix):
			value, err := p.bytes(g, e.value, e.size)
			if err != nil || len(value) < bucketHeaderBytes {
				return fmt.Errorf("page %d: bucket %q is cut off", g.id, e.key)
			}
			return inline(value[bucketHeaderBytes:])
		case !leaf && !past && (leads(i) || leads(i+1)):
			// The child behind those that the prefix leads to is looked at too: whether its key
			// is right, only its page tells. So is the one before, with which what is left of
			// them after rows are removed may be joined.
			past = i > 0 && bytes.Compare(e.key, prefix) > 0 && !bytes.HasPrefix(e.key, prefix)
			if err := p.visitAt(e.child, bounds{e.key, end}, prefix, flat, inline, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
