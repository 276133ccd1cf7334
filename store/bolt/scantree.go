package bolt

import (
	"bytes"
	"encoding/binary"
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

// Standing returns what the file says of the session with a number. That one is gone is for
// good. So where it is in doubt which commit was the last, each that lacks it counts.
func (s *Scan) Standing(number uint64) Standing {
	said := Unsaid
	for i, c := range s.catalogs {
		one := c.standing(number)
		if one == Gone && c.unlinked.has[number] && (i > 0 || s.Metas == 0) { // it may be there in a later commit
			one = Unsaid
		}
		switch {
		case i == 0 && one == Gone && s.Metas > 0:
			return Gone
		case said == Unsaid || said == Later && one != Unsaid:
			said = one
		case one != Unsaid && one != Later && one != said:
			said = Disputed
		}
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
	var t *tree
	metas, err := readMetas(file)
	if current := metas.current(); err == nil && current != nil {
		t = s.newTree(int64(current.pageSize()))
		if t != nil {
			c, _ := t.catalog(binary.NativeEndian.Uint64(current.bytes[metaRoot:]), true)
			s.out.catalogs = []catalog{c}
			s.out.Metas = 1
			if metas[0].whole() && metas[1].whole() {
				s.out.Metas = 2
				s.out.FreeKnown = t.free(current.freelist())
				t.close()
				return
			}
		}
	}
	if best := s.roots(t); best != nil {
		best.close()
	}
}

const metaRoot = pageHeaderBytes + 16

// maxRoots is how many pages are taken for roots, if it is in doubt which is the newest.
const maxRoots = 64

// roots looks for the pages that hold the buckets, which are or were roots, and what they
// say of sessions. Which is the newest they do not say. It returns t, or, if that is nil, the
// tree of the one with the most sessions and records.
func (s *scanner) roots(t *tree) *tree {
	pageSize := int64(0)
	if t != nil {
		pageSize = int64(t.size)
	} else {
		pageSize = s.guessPageSize()
	}
	best, most := uint64(0), catalog{}
	for at, found := 2*pageSize, 0; at < s.src.size && found < maxRoots; at += pageSize {
		if !s.isRoot(at) {
			continue
		}
		found++
		of, id := s.newTree(pageSize), uint64(at/pageSize)
		if of == nil {
			return t
		}
		c, whole := of.catalog(id, false)
		if !whole || !c.agrees() {
			c.known = false // what it lacks says nothing
		}
		s.out.catalogs = append(s.out.catalogs, c)
		if best == 0 || c.known && !most.known || c.known == most.known && (c.sequence > most.sequence || c.sequence == most.sequence && c.lasts > most.lasts) {
			best, most = id, c
		}
	}
	if t == nil {
		if t = s.newTree(pageSize); t != nil && best != 0 {
			t.catalog(best, true)
		}
	}
	return t
}

// agrees reports whether entries and heads are known, and of the same sessions. Pages that a
// root of before leads to may have been written anew.
func (c *catalog) agrees() bool {
	return c.entries.whole && c.heads.whole && maps.Equal(c.entries.has, c.heads.has)
}

// isRoot reports whether a page has the beginning of a leaf whose first element is the bucket
// that comes first.
func (s *scanner) isRoot(at int64) bool {
	head, ok := s.src.bytes(at, pageHeaderBytes+elementBytes)
	if !ok || binary.NativeEndian.Uint16(head[8:]) != leafFlag || binary.NativeEndian.Uint32(head[pageHeaderBytes:]) != bucketFlag ||
		int(binary.NativeEndian.Uint32(head[pageHeaderBytes+8:])) > len(bucketSharedNames) {
		return false
	}
	pos, size := int64(binary.NativeEndian.Uint32(head[pageHeaderBytes+4:])), int(binary.NativeEndian.Uint32(head[pageHeaderBytes+8:]))
	name, ok := s.src.bytes(at+pageHeaderBytes+pos, size)
	return ok && slices.ContainsFunc(ownBuckets, func(own []byte) bool { return bytes.Equal(own, name) })
}

// guessPageSize returns the size of pages by which most headers say the page that they
// stand on.
func (s *scanner) guessPageSize() int64 {
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
	return best
}

// tree looks over the pages that a root leads to.
type tree struct {
	s      *scanner
	size   uint64 // of a page
	pages  []Rank
	broken []uint64
	many   int
}

func (s *scanner) newTree(pageSize int64) *tree {
	if pageSize < 1<<10 || pageSize > 1<<24 {
		return nil
	}
	t := &tree{s: s, size: uint64(pageSize), pages: make([]Rank, s.src.size/pageSize)}
	for i := range t.pages {
		t.pages[i] = Unknown
	}
	return t
}

// close has what the tree has found count.
func (t *tree) close() {
	slices.Sort(t.broken)
	t.s.ranks = ranks{int64(t.size), t.pages}
	t.s.out.Pages, t.s.out.Broken, t.s.out.BrokenPages = uint64(len(t.pages)), t.broken, t.many
}

func (t *tree) fail(id uint64) {
	if t.many++; len(t.broken) < MaxBroken {
		t.broken = append(t.broken, id)
	}
}

// catalog looks over the pages below a root, all of them or those that say which sessions
// there are, and reports whether the pages on the way to the buckets are in form.
func (t *tree) catalog(root uint64, all bool) (c catalog, whole bool) {
	seen := map[string]bool{}
	whole = t.walk(root, nil, 0, func(key []byte, value row) bool {
		name := string(key)
		if value.flags != bucketFlag || value.size < bucketHeaderBytes || seen[name] {
			return false
		}
		seen[name] = true
		head, ok := t.s.src.bytes(value.at, bucketHeaderBytes)
		if !ok {
			return false
		}
		root, sequence := binary.NativeEndian.Uint64(head), binary.NativeEndian.Uint64(head[8:])
		visit := func(key []byte, value row) bool { return true }
		var of *numbers
		switch name {
		case string(bucketSessions):
			c.sequence, c.known = sequence, true
			of, visit = &c.entries, func(key []byte, value row) bool {
				both, ok := t.s.src.bytes(value.at, int(value.size))
				if !ok || len(both) < entryCreation || entrySumOf(string(key), both) != binary.BigEndian.Uint32(both[entryNumber:]) {
					return false
				}
				c.entries.has[binary.BigEndian.Uint64(both)] = true
				return true
			}
		case string(bucketUnlinked):
			of, visit = &c.unlinked, func(key []byte, value row) bool {
				sum, ok := t.s.src.bytes(value.at, int(value.size))
				if !ok || !wholeUnlinked(key, sum) {
					return false
				}
				c.unlinked.has[binary.BigEndian.Uint64(key)] = true
				return true
			}
		case string(bucketHeads):
			of, visit = &c.heads, func(key []byte, value row) bool {
				row, ok := t.s.src.bytes(value.at, int(value.size))
				if !ok {
					return false
				}
				h, err := decodeHead(string(key), row)
				if err == nil {
					c.heads.has[binary.BigEndian.Uint64(h.number)] = true
					c.lasts += h.last
				}
				return err == nil
			}
		}
		if of != nil {
			of.has = map[uint64]bool{}
		}
		sound := true
		switch {
		case of == nil && !all:
		case root == 0:
			sound = t.inline(value, visit)
		default:
			sound = t.walk(root, nil, 0, visit)
		}
		if of != nil {
			of.whole = sound
		}
		return true
	})
	c.known = c.known && whole && (c.unlinked.whole || !seen[string(bucketUnlinked)])
	return c, whole
}

// row is where a leaf's element leads to.
type row struct {
	at, size int64 // of the value
	flags    uint32
}

// walk looks over a page and those below it, whose first key is given if it is known, and
// reports whether all are in form. Each row is visited, whether or not others are as they
// should be.
func (t *tree) walk(id uint64, first []byte, depth int, visit func(key []byte, value row) bool) bool {
	high := uint64(len(t.pages))
	if id < 2 || id >= high || depth > maxDepth || t.pages[id] == InUse {
		t.fail(id)
		return false
	}
	at := int64(id * t.size)
	header, ok := t.s.src.bytes(at, pageHeaderBytes)
	if !ok {
		t.fail(id)
		return false
	}
	overflow, err := overflowOf(header, id, high)
	if err != nil {
		t.fail(id)
		return false
	}
	for p := id; p <= id+overflow; p++ {
		if t.pages[p] == InUse {
			t.fail(id)
			return false
		}
	}
	rows, pages, sound := t.look(at, int64((overflow+1)*t.size), first)
	if !sound {
		t.fail(id)
		return false
	}
	for p := id; p <= id+overflow; p++ {
		t.pages[p] = InUse
	}
	for _, r := range rows {
		sound = visit(r.key, r.row) && sound
	}
	for _, p := range pages {
		sound = t.walk(p.id, p.first, depth+1, visit) && sound
	}
	return sound
}

func (t *tree) inline(value row, visit func(key []byte, value row) bool) bool {
	rows, pages, sound := t.look(value.at+bucketHeaderBytes, value.size-bucketHeaderBytes, nil)
	for _, r := range rows {
		sound = visit(r.key, r.row) && sound
	}
	return sound && len(pages) == 0
}

type keyedRow struct {
	key []byte
	row
}

type child struct {
	first []byte
	id    uint64
}

// look reads the elements of a page of so many bytes, which must be in form.
func (t *tree) look(at, size int64, first []byte) (rows []keyedRow, pages []child, sound bool) {
	header, ok := t.s.src.bytes(at, pageHeaderBytes)
	if !ok || size < pageHeaderBytes {
		return nil, nil, false
	}
	flags, count := binary.NativeEndian.Uint16(header[8:]), int64(binary.NativeEndian.Uint16(header[10:]))
	end := pageHeaderBytes + count*elementBytes
	if flags != leafFlag && (flags != branchFlag || count == 0) || end > size {
		return nil, nil, false
	}
	table, ok := t.s.src.bytes(at+pageHeaderBytes, int(count)*elementBytes)
	if !ok {
		return nil, nil, false
	}
	table = bytes.Clone(table)
	for i := range count {
		word := func(n int64) uint32 { return binary.NativeEndian.Uint32(table[i*elementBytes+4*n:]) }
		pos, keyBytes, valueBytes := int64(word(1)), int64(word(2)), int64(word(3))
		if flags == branchFlag {
			pos, keyBytes, valueBytes = int64(word(0)), int64(word(1)), 0
		}
		if pageHeaderBytes+i*elementBytes+pos != end || end+keyBytes+valueBytes > size {
			return nil, nil, false
		}
		key, ok := t.s.src.bytes(at+end, int(keyBytes))
		if !ok || i == 0 && first != nil && !bytes.Equal(first, key) {
			return nil, nil, false
		}
		key = bytes.Clone(key)
		if flags == branchFlag {
			pages = append(pages, child{key, binary.NativeEndian.Uint64(table[i*elementBytes+8:])})
		} else {
			rows = append(rows, keyedRow{key, row{at + end + keyBytes, valueBytes, word(0)}})
		}
		end += keyBytes + valueBytes
	}
	return rows, pages, true
}

// free reads the list of free pages, and reports whether it is in form.
func (t *tree) free(id uint64) bool {
	high := uint64(len(t.pages))
	if id < 2 || id >= high {
		return false
	}
	at := int64(id * t.size)
	header, ok := t.s.src.bytes(at, pageHeaderBytes+8)
	if !ok || binary.NativeEndian.Uint16(header[8:]) != freelistFlag {
		return false
	}
	overflow, err := overflowOf(header, id, high)
	if err != nil {
		return false
	}
	count, from := uint64(binary.NativeEndian.Uint16(header[10:])), at+pageHeaderBytes
	if count == 0xffff {
		count, from = binary.NativeEndian.Uint64(header[pageHeaderBytes:]), from+8
	}
	if count > (overflow+1)*t.size/8 || from+int64(count)*8 > at+int64((overflow+1)*t.size) {
		return false
	}
	ids, ok := t.s.src.bytes(from, int(count)*8)
	if !ok {
		return false
	}
	before := uint64(1)
	for i := range count {
		page := binary.NativeEndian.Uint64(ids[i*8:])
		if page <= before || page < high && t.pages[page] == InUse {
			return false
		}
		before = page
	}
	for i := range count {
		if page := binary.NativeEndian.Uint64(ids[i*8:]); page < high { // of a file that was cut off
			t.pages[page] = Free
		}
	}
	for p := id; p <= id+overflow; p++ {
		t.pages[p] = InUse
	}
	return true
}

const freelistFlag = 16
