package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// So many pages are checked in one transaction, or some more. A test takes other steps.
var slicePages = 512

// pageCheck checks the trees of all buckets, a slice of them in each transaction. Keys that
// ascend, within what each page's parent says, lead nowhere twice: a page that were reached by
// two ways of a tree would not begin with the key that one of them promises.
type pageCheck struct {
	found *findings

	// Of the bucket with this name, keys below from have been checked, and all of the buckets
	// before it.
	bucket, from []byte
	done         bool

	used   uint64 // pages of the trees
	txid   int    // of the first slice
	slices int
	moved  bool // another transaction has been committed since
}

// checkPages checks that the pages that lead to each row are in form, in order and not free,
// and each free page is on the list once.
func (b *Backend) checkPages(ctx context.Context, found *findings) error {
	c := pageCheck{found: found}
	for !c.done {
		if err := b.checkSlice(ctx, &c); err != nil {
			return err
		}
	}
	return nil
}

// checkSlice checks one slice. It has the writer's place for no longer than it takes to begin:
// the list of free pages has to be the transaction's own.
func (b *Backend) checkSlice(ctx context.Context, c *pageCheck) error {
	unlock, err := b.lockWriter(ctx)
	if err != nil {
		return err
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	return b.use(ctx, func(h *handle) error {
		err := h.view(func(tx *txn) error {
			metas, err := readMetas(h.file)
			unlock()
			if err != nil {
				return err
			}
			return c.slice(tx, h.file, metas)
		})
		if errors.Is(err, os.ErrClosed) && h.abandoned() {
			return h.lost
		}
		return err
	})
}

func (c *pageCheck) slice(tx *txn, file *os.File, metas metaPages) error {
	current := metas.current()
	if current == nil {
		return fmt.Errorf("%w: both meta pages", backend.ErrDamaged)
	}
	high := uint64(tx.Size()) / uint64(tx.DB().Info().PageSize)
	list, err := readFreelist(file, current, high)
	if c.slices++; c.slices == 1 {
		c.txid = tx.ID()
		c.found.add(errors.Join(metas.doubt(), err, list.check(high)))
	}
	c.moved = c.moved || err != nil || c.txid != tx.ID()

	pages := pagesOf(tx, file, list.has)
	top := walk{pages: pages, room: maxTopPages, found: c.found}
	top.visit(tx.tree.root, bounds{}, 0)
	room := slicePages
	for _, bucket := range top.buckets {
		switch order := bytes.Compare(bucket.key, c.bucket); {
		case order < 0:
			continue
		case order > 0:
			c.bucket, c.from = bytes.Clone(bucket.key), nil
		}
		w := walk{name: bucket.key, pages: pages, room: room, from: c.from, found: c.found}
		if bucket.page != 0 {
			w.visit(bucket.page, bounds{}, 0)
		}
		c.used += w.used
		if w.next != nil {
			c.from = bytes.Clone(w.next)
			return nil
		}
		room = w.room
		c.bucket, c.from = append(c.bucket, 0), nil // the next one
	}
	c.done = true
	if total := c.used + top.used + uint64(list.len()) + list.own + 2; !c.moved && !c.found.pages && total != high {
		c.found.report("%w: of %d pages %d are in use or free", backend.ErrDamaged, high, total)
	}
	return nil
}

// There are some ten buckets, which take a page or two.
const maxTopPages = 1 << 20

// walk visits the pages of a tree that lead to keys from a given one on.
type walk struct {
	name  []byte // of the bucket; nil is the tree of buckets
	pages *pages
	from  []byte // nil means from the beginning
	room  int    // pages that may still be visited
	found *findings

	next    []byte  // if there was no room, the first key that is left
	used    uint64  // pages that were not visited by a walk to keys before
	buckets []entry // with the pages of their roots, of the tree of buckets
}

func (w *walk) visit(id uint64, b bounds, depth int) {
	before := w.pages.took
	branch, out, err := w.pages.read(id)
	took := w.pages.took - before
	if w.room -= int(max(took, 1)); w.from == nil || b.first != nil && bytes.Compare(b.first, w.from) >= 0 {
		w.used += took
	}
	if err == nil {
		if err = ordered(out, b); err == nil && depth > 0 && len(out) == 0 {
			err = errors.New("it is empty")
		}
		if err == nil && !branch {
			err = w.leaf(out)
		}
		if err != nil {
			err = fmt.Errorf("page %d: %w", id, err)
		}
	}
	if err != nil {
		w.found.pages = true
		w.found.report("%w: bucket %q: %w", backend.ErrDamaged, w.name, err)
		return
	}
	if !branch {
		return
	}
	below := false // something has been visited: the next walk passes by this page
	for i, e := range out {
		end := b.end
		if i+1 < len(out) {
			end = out[i+1].key
		}
		switch {
		case end != nil && bytes.Compare(end, w.from) <= 0:
			continue
		case w.room <= 0 && below:
			w.next = e.key
		default:
			below = true
			w.visit(e.page, bounds{e.key, end}, depth+1)
		}
		if w.next != nil {
			return
		}
	}
}

// leaf checks what a leaf holds: rows, or buckets.
func (w *walk) leaf(out []entry) error {
	for _, e := range out {
		if w.name != nil {
			if e.flags != 0 {
				return fmt.Errorf("key %.64x has the flags %#x", e.key, e.flags)
			}
			continue
		}
		root, inline, err := bucketOf(e)
		if err == nil {
			err = ordered(inline, bounds{})
		}
		if err != nil {
			return err
		}
		w.buckets = append(w.buckets, entry{key: e.key, page: root})
	}
	return nil
}

// ordered reports whether keys ascend, within bounds.
func ordered(out []entry, b bounds) error {
	for i, e := range out {
		end := b.end
		if i+1 < len(out) {
			end = out[i+1].key
		}
		switch {
		case len(e.key) == 0:
			return errors.New("it has an empty key")
		case i == 0 && b.first != nil && !bytes.Equal(e.key, b.first):
			return fmt.Errorf("it begins with key %.64x, and should with %.64x", e.key, b.first)
		case end != nil && bytes.Compare(e.key, end) >= 0:
			return fmt.Errorf("key %.64x is out of order", e.key)
		}
	}
	return nil
}
