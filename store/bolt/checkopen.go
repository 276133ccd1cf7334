package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// checkOpen checks the invariants of a file that bbolt relies on but does not check. It reads the branch pages of all
// trees and the leaf pages that contain the roots of the buckets. A cycle of branch pages would overflow the stack in
// bbolt. A page that is both in use and in the free list would be overwritten. Damage of any other leaf page affects
// only the rows of that page, and is detected when the page is read.
func checkOpen(file *os.File) (metas metaPages, err error) {
	if metas, err = readMetas(file); err != nil {
		return metas, err
	}
	current := metas.current()
	if current == nil {
		return metas, fmt.Errorf("%w: both meta pages are damaged", backend.ErrDamaged)
	}
	info, err := file.Stat()
	if err != nil {
		return metas, err
	}
	if least := int64(current.Pages) * int64(current.PageSize); info.Size() < least {
		return metas, fmt.Errorf("%w: the file has %d bytes of %d; its end is missing", backend.ErrDamaged, info.Size(), least)
	}
	free, err := readFreelist(file, current)
	if err != nil {
		return metas, err
	}
	return metas, checkTree(current.pager(file), current.Root, free)
}

// pageUse is the use of a page.
type pageUse byte

const (
	pageUnclaimed pageUse = iota
	pageFree
	pageFreelist
	isBranch
	pageLeaf // a leaf whose overflow pages are not marked yet
)

func checkTree(pages pager, root uint64, free freelist) error {
	uses := make([]pageUse, pages.pageCount)
	for _, id := range free.ids {
		uses[id] = pageFree
	}
	for i := range free.pages {
		uses[free.first+i] = pageFreelist
	}
	var damage error
	var roots []uint64
	w := walker{pager: pages, onInvalid: func(_ uint64, err error) { damage = errors.Join(damage, err) }}
	w.claim = func(id, n uint64) error {
		if id < 2 || id+n > pages.pageCount {
			return fmt.Errorf("the file has only pages 2 to %d", pages.pageCount-1)
		}
		for i := range n {
			switch uses[id+i] {
			case pageUnclaimed:
			case pageFree, pageFreelist:
				return fmt.Errorf("page %d is both in use and in the list of free pages", id+i)
			default:
				return fmt.Errorf("page %d is referenced twice", id+i)
			}
			uses[id+i] = pageLeaf
		}
		return nil
	}
	w.leaf = func(p page) error {
		for _, e := range p.elements {
			root, _, err := bucketRoot(e)
			if err != nil {
				return err
			}
			roots = append(roots, root)
		}
		return nil
	}
	w.walk(root, bounds{}, 0)
	w.leaf = nil
	for _, root := range roots {
		if root == 0 || damage != nil {
			continue
		}
		if flags, _, err := pages.header(root); err == nil && flags == branchFlag {
			w.walk(root, bounds{}, 0)
		} else {
			damage = w.claim(root, 1)
		}
	}
	if damage == nil {
		damage = checkFreeOverflow(pages, uses)
	}
	if damage != nil {
		return fmt.Errorf("%w: %w", backend.ErrDamaged, damage)
	}
	return nil
}

// checkFreeOverflow returns an error if an overflow page of a leaf is in the free list. It reads only leaves that
// are followed by a free page. It skips damaged leaves, because no write copies a damaged leaf, and its damage
// affects only its own rows.
func checkFreeOverflow(pages pager, uses []pageUse) error {
	leaf := uint64(0)
	for id, use := range uses {
		switch {
		case use == pageLeaf:
			leaf = uint64(id)
		case use == pageFreelist:
			leaf = 0
		case use == pageFree && leaf != 0:
			if p, err := pages.read(leaf); err == nil && p.checkOverflow(pages.pageSize) == nil && leaf+p.pages > uint64(id) {
				return fmt.Errorf("page %d, an overflow page of page %d, is in the list of free pages", id, leaf)
			}
			leaf = 0
		}
	}
	return nil
}

// checkBuckets returns an error unless the file has all buckets and this FileVersion.
func checkBuckets(tx *bbolt.Tx) error {
	var missing []byte
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			missing = name
		}
	}
	switch {
	case tx.Bucket(bucketMeta) == nil && tx.Bucket(bucketRecords) == nil:
		return fmt.Errorf("%w: it is a bbolt file of another program, or it has no buckets", backend.ErrNotDatabase)
	case missing != nil:
		return fmt.Errorf("%w: bucket %q is missing", backend.ErrDamaged, missing)
	}
	if version := tx.Bucket(bucketMeta).Get(keyVersion); !bytes.Equal(version, number(FileVersion)) {
		return fmt.Errorf("%w: file version %x; this program supports version %d, a newer one may support it", backend.ErrDamaged, version, FileVersion)
	}
	return nil
}

// pathChecker checks the pages that the writes of a transaction will copy, so that damage does not spread to other
// sessions. If a page contradicts its parent, bbolt frees pages in use, or inserts keys where no search finds them.
type pathChecker struct {
	tx          *bbolt.Tx
	pages       pager
	validLeaves map[uint64]bool // ids of pages that were checked and are valid
}

func (h *handle) newPathChecker(tx *bbolt.Tx) *pathChecker {
	size := uint64(tx.DB().Info().PageSize)
	return &pathChecker{tx, pager{h.file, size, uint64(tx.Size()) / size}, map[uint64]bool{}}
}

// check checks the paths to the keys that begin with prefix, in each of the buckets. It also checks the sibling
// pages, because bbolt may merge a page with a sibling after rows are removed.
func (w *pathChecker) check(prefix []byte, buckets ...[]byte) (err error) {
	// A search for a key less than all keys ends in the first child, so first is nil for that child.
	onPath := func(first, end []byte) bool {
		return (bytes.Compare(first, prefix) <= 0 || bytes.HasPrefix(first, prefix)) && (end == nil || bytes.Compare(end, prefix) > 0)
	}
	for _, bucket := range buckets {
		w.walk(bucket, func(p page, i int) bool {
			var first, end []byte
			if i > 1 {
				first = p.elements[i-1].key
			}
			if i+2 < len(p.elements) {
				end = p.elements[i+2].key
			}
			return err == nil && !w.validLeaves[p.elements[i].child] && onPath(first, end)
		}, func(damage error) {
			err = errors.Join(err, fmt.Errorf("%w: the path to key %.64x of bucket %q: %w", backend.ErrDamaged, prefix, bucket, damage))
		})
	}
	return err
}

// checkLeaves checks the pages of a bucket, beginning with the page for the key from. It stops after leavesPerTx
// leaves and returns the first key of the next leaf. If all leaves are checked, it returns nil.
func (w *pathChecker) checkLeaves(bucket, from []byte, found *findings) (next []byte) {
	w.walk(bucket, func(p page, i int) bool {
		switch {
		case i+1 < len(p.elements) && bytes.Compare(p.elements[i+1].key, from) <= 0:
			return false
		case len(w.validLeaves) < leavesPerTx:
			return true
		case next == nil:
			next = bytes.Clone(p.elements[i].key)
		}
		return false
	}, func(damage error) { found.report("bucket %q: %w", bucket, damage) })
	return next
}

// walk visits the pages of a bucket for which enter returns true, and adds the valid leaves to validLeaves.
func (w *pathChecker) walk(bucket []byte, enter func(p page, i int) bool, report func(error)) {
	b := w.tx.Bucket(bucket)
	// An inline root is in a page that was checked when the file was opened.
	if b == nil || b.Root() == 0 {
		return
	}
	pages := walker{pager: w.pages, visit: enter, onInvalid: func(_ uint64, err error) { report(err) }}
	pages.leaf = func(p page) error {
		for _, e := range p.elements {
			if e.flags != 0 {
				return fmt.Errorf("key %.64x has the flags %#x", e.key, e.flags)
			}
		}
		if err := p.checkOverflow(w.pages.pageSize); err != nil {
			return err
		}
		w.validLeaves[p.id] = true
		return nil
	}
	pages.walk(uint64(b.Root()), bounds{}, 0)
}
