package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
)

// catalog has the numbers of the sessions in the tree below a root.
type catalog struct {
	sequence uint64 // last assigned session number
	known    bool   // sequence was read
	entries  numbers
	heads    numbers
	unlinked numbers // numbers of deleted sessions and of unfinished ones
}

type numbers struct {
	whole bool // all pages below the root were read
	has   map[uint64]bool
}

// Standing returns whether the session with a number exists. A staged session counts as Gone, unless a later commit
// may have renamed it.
func (s *Scan) Standing(number uint64) Standing {
	said := s.catalog.standing(number)
	if said == Gone && s.Metas == 0 && s.catalog.unlinked.has[number] {
		return Unsaid
	}
	return said
}

func (c *catalog) standing(number uint64) Standing {
	entry, head := c.entries.has[number], c.heads.has[number]
	switch {
	case entry && head:
		return There
	case entry || head:
		if entry && c.heads.whole || head && c.entries.whole {
			return Disputed
		}
		return There
	case !c.known || !c.entries.whole && !c.heads.whole:
		return Unsaid
	case number > c.sequence:
		return Later
	}
	return Gone
}

// survey reads the intact part of the tree. It determines the pages in use, the free pages and the existing sessions.
func (s *scanner) survey(file io.ReaderAt) {
	metas, _ := readMetas(file)
	for i := range metas {
		if metas[i].whole() {
			s.out.Metas++
		}
	}
	var t *tree
	if current := metas.current(); current == nil {
		t = s.newTree(s.guessPageSize())
		t.newest()
	} else {
		t = s.newTree(uint64(current.PageSize))
		s.out.catalog = t.catalog(current.Root)
		s.out.FreeKnown = s.out.Metas == 2 && t.free(current)
	}
	s.pageSize, s.pages = int64(t.size), t.pages
	s.out.Pages = t.high
}

// newest finds the leaf with the bucket roots written by the last transaction, and reads the tree below that leaf. It
// is used if both meta pages are damaged.
func (t *tree) newest() {
	root, newest := uint64(0), uint64(0)
	for id := uint64(2); id < t.high; id++ {
		if flags, pages, err := t.header(id); err != nil || flags != leafFlag || pages > 1 {
			continue
		}
		p, err := t.read(id)
		if err != nil {
			continue
		}
		for _, e := range p.elements {
			if _, _, err := bucketRoot(e); err == nil && bytes.Equal(e.key, bucketMeta) {
				if written := binary.NativeEndian.Uint64(e.value[8:]); written >= newest {
					root, newest = id, written
				}
			}
		}
	}
	if root != 0 {
		t.s.out.catalog = t.catalog(root)
	}
}

// guessPageSize returns the page size at which the most pages begin with their own page number.
func (s *scanner) guessPageSize() uint64 {
	best, most := int64(os.Getpagesize()), 0
	for size := int64(blockBytes); size <= 64<<10; size *= 2 {
		right := 0
		for i := int64(2); i < min(s.src.size/size, 1024); i++ {
			if id, ok := s.src.bytes(i*size, 8); ok && binary.NativeEndian.Uint64(id) == uint64(i) {
				right++
			}
		}
		if right > most {
			best, most = size, right
		}
	}
	return uint64(best)
}

// tree reads the pages that are reachable from a root.
type tree struct {
	pager
	s     *scanner
	pages []Rank
}

func (s *scanner) newTree(pageSize uint64) *tree {
	t := &tree{pager: pager{s.src, pageSize, uint64(s.src.size) / pageSize}, s: s}
	t.pages = slices.Repeat([]Rank{Unknown}, int(t.high))
	return t
}

// walk reads the pages below a root and calls row with each element of a leaf. It reports whether all pages are
// valid.
func (t *tree) walk(root uint64, row func(e element)) (sound bool) {
	w := walker{pager: t.pager}
	w.claim = func(id, n uint64) error {
		if slices.Contains(t.pages[id:id+n], InUse) {
			return errors.New("it is reached by two ways")
		}
		for i := range n {
			t.pages[id+i] = InUse
		}
		return nil
	}
	w.wrong = func(uint64, error) { t.s.out.BrokenPages++ }
	w.leaf = func(p page) error {
		for _, e := range p.elements {
			row(e)
		}
		return nil
	}
	return w.walk(root, bounds{}, 0)
}

// catalog reads the numbers of the sessions in the tree below a root.
func (t *tree) catalog(root uint64) (c catalog) {
	numbered := map[string]struct {
		*numbers
		kind
	}{string(bucketSessions): {&c.entries, kindEntry}, string(bucketHeads): {&c.heads, kindHead}, string(bucketUnlinked): {&c.unlinked, kindUnlinked}}
	for _, of := range numbered {
		of.has = map[uint64]bool{}
	}
	bucketsWhole := true
	whole := t.walk(root, func(bucket element) {
		root, inline, err := bucketRoot(bucket)
		if err != nil {
			bucketsWhole = false
			return
		}
		of, names := numbered[string(bucket.key)]
		sound := true
		row := func(e element) {
			if !names {
				return
			}
			number, ok := unseal(of.kind, e.key, e.value)
			if of.kind == kindUnlinked {
				number = e.key
			}
			if ok = ok && len(number) >= 8; ok {
				of.has[binary.BigEndian.Uint64(number)] = true
			}
			sound = sound && ok
		}
		if root != 0 {
			sound = t.walk(root, row) && sound
		}
		for _, e := range inline.elements {
			row(e)
		}
		if names {
			of.whole = sound
		}
		if bytes.Equal(bucket.key, bucketSessions) {
			c.sequence, c.known = binary.NativeEndian.Uint64(bucket.value[8:]), true
		}
	})
	c.known = c.known && whole && bucketsWhole && c.unlinked.whole
	return c
}

// free reads the free list and reports whether it is valid.
func (t *tree) free(current *metaPage) bool {
	free, err := readFreelist(t.s.src, current)
	if err != nil || free.id+free.own > t.high {
		return false
	}
	ids := slices.DeleteFunc(free.ids, func(id uint64) bool { return id >= t.high }) // beyond the end of a truncated file
	if slices.ContainsFunc(ids, func(id uint64) bool { return t.pages[id] == InUse }) {
		return false
	}
	for _, id := range ids {
		t.pages[id] = Free
	}
	for i := range free.own {
		t.pages[free.id+i] = InUse
	}
	return true
}
