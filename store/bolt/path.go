package bolt

import (
	"bytes"
	"fmt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// A write goes down from the root to the leaf of a key, and writes all these pages anew.
// If one of them is not what its parent takes it for, bbolt frees pages that are in use,
// or puts keys where nothing finds them, and damage spreads to what was whole. So the way
// is looked over before it is written to for the first time.

const maxDepth = 64 // of a tree; a deeper one goes in a circle

// paths looks pages over as a transaction found them.
type paths struct {
	mapped                      // the tree of the buckets
	free   func(id uint64) bool // as a writing transaction knows it
}

func pathsOf(tx *txn) paths {
	return paths{tx.tree, func(id uint64) bool {
		if !tx.Writable() { // who writes meanwhile may free what this one sees
			return false
		}
		p, err := tx.Page(int(id))
		return err == nil && p != nil && p.Type == "free"
	}}
}

// sound reports whether the ways to the keys of a bucket that begin with prefix, and to
// prefix itself, are whole. A bucket that is not in the file has none.
func (p paths) sound(name, prefix []byte) error {
	top, err := p.top()
	if err == nil {
		err = p.look(top, bounds{}, name, 0, func(e element) error {
			rows, _, err := p.bucketIn(e)
			if err != nil {
				return err
			}
			p.mapped = rows
			top, err := p.top()
			if err != nil {
				return err
			}
			return p.look(top, bounds{}, prefix, 0, nil)
		})
	}
	if err != nil {
		return fmt.Errorf("%w: the way to key %.64x of bucket %q: %w", backend.ErrDamaged, prefix, name, err)
	}
	return nil
}

// top returns the root.
func (p paths) top() (node, error) {
	if p.inline != nil && p.root == 0 {
		return p.mapped.top()
	}
	return p.read(p.root)
}

// bounds are what a page's parent says of its keys: the first one, and one that is above
// all. nil is no bound.
type bounds struct{ first, end []byte }

// look looks a page over, and those below it to which the prefix leads. In the tree of buckets it
// calls bucket with the entry whose key is the prefix; in that of rows, bucket is nil.
func (p paths) look(n node, b bounds, prefix []byte, depth int, bucket func(element) error) error {
	elements, err := p.elements(n)
	switch {
	case err != nil:
		return err
	case depth > maxDepth:
		return fmt.Errorf("page %d is reached in a circle", n.id)
	case len(elements) == 0 && depth > 0:
		return fmt.Errorf("page %d is empty", n.id)
	case len(elements) > 0 && b.first != nil && !bytes.Equal(elements[0].key, b.first):
		return fmt.Errorf("page %d begins with key %.64x, and should with %.64x", n.id, elements[0].key, b.first)
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
			return fmt.Errorf("page %d: key %.64x is out of order", n.id, e.key)
		}
		switch {
		case n.leaf && (bucket == nil) != (e.flags == 0):
			return fmt.Errorf("page %d: key %.64x has the flags %#x", n.id, e.key, e.flags)
		case n.leaf && bucket != nil && bytes.Equal(e.key, prefix):
			return bucket(e)
		case !n.leaf && !past && (leads(i) || leads(i+1)):
			// The child behind those that the prefix leads to is looked at too: whether its key
			// is right, only its page tells. So is the one before, with which what is left of
			// them after rows are removed may be joined.
			past = i > 0 && bytes.Compare(e.key, prefix) > 0 && !bytes.HasPrefix(e.key, prefix)
			child, err := p.read(e.child)
			if err == nil {
				err = p.look(child, bounds{e.key, end}, prefix, depth+1, bucket)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// read returns a page that is not free.
func (p paths) read(id uint64) (node, error) {
	n, err := p.node(id)
	if err == nil && p.free(id) {
		err = fmt.Errorf("page %d is in use and on the list of free pages", id)
	}
	return n, err
}

// elements returns what a page holds, each beyond what says where it is.
func (p paths) elements(n node) (out []element, err error) {
	out = make([]element, n.count)
	for i := range out {
		e, err := n.element(i)
		if err != nil {
			return nil, err
		}
		if len(e.key) == 0 || e.end-uint64(len(e.value)+len(e.key)) < uint64(pageHeaderBytes+n.count*elementBytes) {
			return nil, n.beyond(i)
		}
		out[i] = e
	}
	return out, nil
}
