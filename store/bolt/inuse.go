package bolt

import (
	"fmt"
	"os"
	"slices"
	"sort"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// bbolt believes its list of free pages. One that names a page in use has the next commit write
// over it, and one that names a page beyond the file, or more pages than there are, has the
// next commit take as much memory and disk as that. So the list is looked over before bbolt
// reads it, held against the tree before anything is written, and against what was written before
// each commit.

// lookOver reports whether bbolt may read what it believes without a look: that the file has
// all its pages, and its list of free ones. Of what it refuses by itself nothing is said.
func lookOver(file *os.File) error {
	metas, err := readMetas(file)
	if err != nil {
		return err
	}
	current := metas.current()
	if current == nil {
		return nil
	}
	if err := long(file, int64(current.pages())*int64(current.pageSize())); err != nil {
		return err
	}
	free, err := readFreelist(file, current, current.pages())
	if err != nil {
		return err
	}
	return free.check(current.pages())
}

// freeUnused reports whether none of the free pages is in use.
func freeUnused(tx *txn, file *os.File, current *metaPage) error {
	free, err := readFreelist(file, current, current.pages())
	if err == nil {
		err = free.check(current.pages()) // bbolt has read it since it was looked over
	}
	if err != nil {
		return err
	}
	if err := inUse(tx.tree, free); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrDamaged, err)
	}
	return nil
}

// inUse returns an error if a page of the tree is free. It reads the branches, and those leaves
// that may go on in a free page. What cannot be read it leaves to others. All leaves of a
// bucket are equally deep.
func inUse(tree mapped, free freelist) error {
	use := uses{mapped: tree, free: free, seen: map[uint64]bool{}}
	use.level(tree.root)
	for _, leaf := range use.leaves { // those of the root bucket; below come those of the buckets in them
		n, err := tree.node(leaf)
		for i := range n.count {
			var e element
			var rows mapped
			if err == nil {
				e, err = n.element(i)
			}
			if err == nil {
				rows, _, err = tree.bucketIn(e)
			}
			if err == nil {
				use.level(rows.root)
			}
		}
	}
	use.goOn()
	return use.wrong
}

// uses are a walk through the pages in use.
type uses struct {
	mapped
	free   freelist
	leaves []uint64
	seen   map[uint64]bool // branches
	wrong  error
}

func (u *uses) take(id uint64) {
	switch {
	case u.wrong != nil:
	case u.free.has(id):
		u.wrong = fmt.Errorf("page %d is in use and on the list of free pages", id)
	case u.free.isIts(id):
		u.wrong = fmt.Errorf("page %d is in use, and the list of free pages takes it up", id)
	}
}

// level visits a page and those below it, and returns how many levels there are.
func (u *uses) level(id uint64) (levels int) {
	if id < 2 {
		return 0
	}
	u.take(id)
	n, err := u.node(id)
	switch {
	case err != nil, u.seen[id]:
		return 0
	case n.leaf:
		u.leaves = append(u.leaves, id)
		return 1
	}
	u.seen[id] = true
	u.rest(n)
	for i := range n.count {
		e, err := n.element(i)
		switch {
		case err != nil:
			return levels + 1
		case levels == 1: // so are its siblings leaves
			u.take(e.child)
			u.leaves = append(u.leaves, e.child)
		default:
			levels = max(levels, u.level(e.child))
		}
	}
	return levels + 1
}

// rest takes the pages that a page goes on in, as far as there is something in them.
func (u *uses) rest(n node) {
	end := uint64(0)
	for i := range n.count {
		if e, err := n.element(i); err == nil {
			end = max(end, e.end)
		}
	}
	for at := u.pageSize; at < end; at += u.pageSize {
		u.take(n.id + at/u.pageSize)
	}
}

// goOn takes what leaves go on in. It reads those with a free page between them and the next one.
func (u *uses) goOn() {
	slices.Sort(u.leaves)
	for i, id := range u.leaves {
		next := sort.Search(u.free.len(), func(i int) bool { return u.free.at(i) > id })
		if next == u.free.len() || i+1 < len(u.leaves) && u.free.at(next) > u.leaves[i+1] {
			continue
		}
		if n, err := u.node(id); err == nil && uint64(len(n.data)) > u.pageSize {
			u.rest(n)
		}
	}
}
