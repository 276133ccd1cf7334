package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
)

// ranks are the ranks of pages.
type ranks struct {
	pageSize int64
	pages    []Rank
}

// of returns the rank of the page that a place is on.
func (r *ranks) of(at int64) Rank {
	if page := at / r.pageSize; page < int64(len(r.pages)) {
		return r.pages[page]
	}
	return Unknown
}

// said returns the rank of what stands at a place, with a page's header that says which
// page it is. If that is another one, it was moved: it is of no use to its place, and of no
// more than unknown use to the one that it names.
func (r *ranks) said(at int64, id uint64) Rank {
	if at%r.pageSize != 0 || id == uint64(at/r.pageSize) || id >= uint64(len(r.pages)) {
		return r.of(at)
	}
	return min(r.pages[id], Unknown)
}

// catalog is what a root says of which sessions there are.
type catalog struct {
	sequence uint64 // the last number given out
	known    bool   // the sequence is
	entries  numbers
	heads    numbers
	unlinked numbers // of a deleted session, or of one that was still being put together
	lasts    uint64  // of all heads, added up
}

type numbers struct {
	whole bool // all are known
	has   map[uint64]bool
}

// Standing returns what the file says of the session with a number. That one is gone is for good, unless there may be
// a later commit, in which what was being put together is there.
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

// survey finds out which pages are in use, which are free, and which sessions there are,
// as far as the tree tells.
func (s *scanner) survey(file io.ReaderAt) {
	metas, _ := readMetas(file)
	for i := range metas {
		if metas[i].whole() {
			s.out.Metas++
		}
	}
	current := metas.current()
	if current == nil {
		s.newTree(s.guessPageSize()).best()
		return
	}
	t := s.newTree(uint64(current.pageSize()))
	s.out.catalog, _ = t.catalog(current.root(), true)
	if s.out.Metas == 2 {
		s.out.FreeKnown = t.free(current)
	}
	t.close()
}

// maxRoots is how many pages are taken for roots, if it is in doubt which is the newest.
const maxRoots = 64

// best takes, of the pages that hold the buckets, which are or were roots, the one with the most sessions and
// records.
func (t *tree) best() {
	best := uint64(0)
	for id, found := uint64(2), 0; id < t.high && found < maxRoots; id++ {
		if !t.s.isRoot(int64(id * t.size)) {
			continue
		}
		found++
		c, whole := t.s.newTree(t.size).catalog(id, false)
		// Pages that a root of before leads to may have been written anew; what it lacks says nothing then.
		c.known = c.known && whole && c.entries.whole && c.heads.whole && maps.Equal(c.entries.has, c.heads.has)
		if most := &t.s.out.catalog; best == 0 || c.known && !most.known || c.known == most.known && (c.sequence > most.sequence || c.sequence == most.sequence && c.lasts > most.lasts) {
			best, *most = id, c
		}
	}
	if best != 0 {
		t.catalog(best, true)
	}
	t.close()
}

// isRoot reports whether a page has the beginning of a leaf whose first element is the bucket
// that comes first.
func (s *scanner) isRoot(at int64) bool {
	head, ok := s.src.bytes(at, pageHeaderBytes+elementBytes)
	if !ok || binary.NativeEndian.Uint16(head[8:]) != leafFlag || binary.NativeEndian.Uint32(head[pageHeaderBytes:]) != bucketFlag ||
		binary.NativeEndian.Uint32(head[pageHeaderBytes+8:]) > 16 {
		return false
	}
	pos, size := int64(binary.NativeEndian.Uint32(head[pageHeaderBytes+4:])), int(binary.NativeEndian.Uint32(head[pageHeaderBytes+8:]))
	name, ok := s.src.bytes(at+pageHeaderBytes+pos, size)
	return ok && slices.ContainsFunc(buckets, func(own []byte) bool { return bytes.Equal(own, name) })
}

// guessPageSize returns the size of pages by which most headers say the page that they
// stand on.
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

// tree looks over the pages that a root leads to.
type tree struct {
	pager
	s      *scanner
	pages  []Rank
	broken []uint64
	many   int
}

func (s *scanner) newTree(pageSize uint64) *tree {
	t := &tree{pager: pager{s.src, pageSize, uint64(s.src.size) / pageSize}, s: s}
	t.pages = make([]Rank, t.high)
	for i := range t.pages {
		t.pages[i] = Unknown
	}
	return t
}

// close has what the tree has found count.
func (t *tree) close() {
	slices.Sort(t.broken)
	t.s.ranks = ranks{int64(t.size), t.pages}
	t.s.out.Pages, t.s.out.Broken, t.s.out.BrokenPages = t.high, t.broken, t.many
}

// walk looks over the pages below a root, calls row with the elements of leaves, and reports whether all
// are in form.
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
	w.wrong = func(id uint64, _ error) {
		if t.many++; len(t.broken) < MaxBroken {
			t.broken = append(t.broken, id)
		}
	}
	w.leaf = func(p page) error {
		for _, e := range p.elements {
			row(e)
		}
		return nil
	}
	return w.walk(root, bounds{}, 0)
}

// catalog looks over the pages below a root, all of them or those that say which sessions
// there are, and reports whether the pages on the way to the buckets are in form.
func (t *tree) catalog(root uint64, all bool) (c catalog, whole bool) {
	bucketsWhole := true
	whole = t.walk(root, func(bucket element) {
		root, inline, err := bucketRoot(bucket)
		if err != nil {
			bucketsWhole = false
			return
		}
		of, visit := c.of(string(bucket.key))
		if of == nil && !all {
			return
		}
		sound := true
		row := func(e element) { sound = visit(e.key, e.value) && sound }
		if root != 0 {
			sound = t.walk(root, row) && sound
		}
		for _, e := range inline.elements {
			row(e)
		}
		if of != nil {
			of.whole = sound
		}
		if bytes.Equal(bucket.key, bucketSessions) {
			c.sequence, c.known = binary.NativeEndian.Uint64(bucket.value[8:]), true
		}
	})
	whole = whole && bucketsWhole
	c.known = c.known && whole && c.unlinked.whole
	return c, whole
}

// of returns the numbers that a bucket says something of, nil if it is none of those, and what takes its
// rows.
func (c *catalog) of(bucket string) (of *numbers, visit func(key, row []byte) bool) {
	switch bucket {
	case string(bucketSessions):
		of, visit = &c.entries, func(key, row []byte) bool {
			value, _ := unseal(kindEntry, key, row)
			s, ok := decodeEntry(value)
			if ok {
				c.entries.has[s.id()] = true
			}
			return ok
		}
	case string(bucketUnlinked):
		of, visit = &c.unlinked, func(key, row []byte) bool {
			_, ok := unseal(kindUnlinked, key, row)
			if ok = ok && len(key) == 8; ok {
				c.unlinked.has[binary.BigEndian.Uint64(key)] = true
			}
			return ok
		}
	case string(bucketHeads):
		of, visit = &c.heads, func(key, row []byte) bool {
			value, _ := unseal(kindHead, key, row)
			h, ok := decodeHead(value)
			if ok {
				c.heads.has[binary.BigEndian.Uint64(h.number)] = true
				c.lasts += h.last
			}
			return ok
		}
	default:
		return nil, func([]byte, []byte) bool { return true }
	}
	of.has = map[uint64]bool{}
	return of, visit
}

// free reads the list of free pages, and reports whether it is in form.
func (t *tree) free(current *metaPage) bool {
	free, err := readFreelist(t.s.src, current)
	if err != nil || free.id+free.own > t.high {
		return false
	}
	for i := range free.len() {
		if id := free.at(i); id < t.high && t.pages[id] == InUse {
			return false
		}
	}
	for i := range free.len() {
		if id := free.at(i); id < t.high { // of a file that was cut off
			t.pages[id] = Free
		}
	}
	for i := range free.own {
		t.pages[free.id+i] = InUse
	}
	return true
}
