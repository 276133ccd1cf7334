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
	complete bool   // whether all bucket roots and the whole list of deleted sessions were read
	entries  numbers
	heads    numbers
	unlinked numbers // numbers of deleted or unfinished sessions
}

type numbers struct {
	complete bool // whether all pages below the root were read
	seen     map[uint64]bool
}

// StateOf returns the state of the session with the given number. A staged session counts as deleted, unless a later
// commit may have renamed the session.
func (s *Scan) StateOf(number uint64) SessionState {
	state := s.catalog.sessionState(number)
	if state == SessionDeleted && s.Metas == 0 && s.catalog.unlinked.seen[number] {
		return SessionUnknown
	}
	return state
}

func (c *catalog) sessionState(number uint64) SessionState {
	entry, head := c.entries.seen[number], c.heads.seen[number]
	switch {
	case entry && head:
		return SessionExists
	case entry || head:
		if entry && c.heads.complete || head && c.entries.complete {
			return SessionConflicting
		}
		return SessionExists
	case !c.complete || !c.entries.complete && !c.heads.complete:
		return SessionUnknown
	case number > c.sequence:
		return SessionUnassigned
	}
	return SessionDeleted
}

// survey reads the intact part of the tree. It determines the pages in use, the free pages and the existing sessions.
func (s *scanner) survey(file io.ReaderAt) {
	metas, _ := readMetas(file)
	for i := range metas {
		if metas[i].isValid() {
			s.out.Metas++
		}
	}
	var t *tree
	if current := metas.current(); current == nil {
		t = s.newTree(s.guessPageSize())
		t.readNewestRoot()
	} else {
		t = s.newTree(uint64(current.PageSize))
		s.out.catalog = t.readCatalog(current.Root)
		s.out.FreeKnown = s.out.Metas == 2 && t.readFreePages(current)
	}
	s.pageSize, s.ranks = int64(t.pageSize), t.ranks
	s.out.Pages = t.pageCount
}

// readNewestRoot finds the leaf with the bucket roots written by the last transaction, and reads the tree below that
// leaf. It is used if both meta pages are damaged.
func (t *tree) readNewestRoot() {
	root, newest := uint64(0), uint64(0)
	for id := uint64(2); id < t.pageCount; id++ {
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
		t.s.out.catalog = t.readCatalog(root)
	}
}

// guessPageSize returns the page size at which the most pages begin with their own page number.
func (s *scanner) guessPageSize() uint64 {
	best, bestMatches := int64(os.Getpagesize()), 0
	for size := int64(blockBytes); size <= 64<<10; size *= 2 {
		matches := 0
		for i := int64(2); i < min(s.src.size/size, 1024); i++ {
			if id, ok := s.src.bytes(i*size, 8); ok && binary.NativeEndian.Uint64(id) == uint64(i) {
				matches++
			}
		}
		if matches > bestMatches {
			best, bestMatches = size, matches
		}
	}
	return uint64(best)
}

// tree reads the pages that are reachable from a root.
type tree struct {
	pager
	s     *scanner
	ranks []Rank
}

func (s *scanner) newTree(pageSize uint64) *tree {
	t := &tree{pager: pager{s.src, pageSize, uint64(s.src.size) / pageSize}, s: s}
	t.ranks = slices.Repeat([]Rank{Unknown}, int(t.pageCount))
	return t
}

// walk reads the pages below a root and calls row with each element of a leaf. It reports whether all pages are
// valid.
func (t *tree) walk(root uint64, row func(e element)) (valid bool) {
	w := walker{pager: t.pager}
	w.claim = func(id, n uint64) error {
		if slices.Contains(t.ranks[id:id+n], InUse) {
			return errors.New("it is referenced twice")
		}
		for i := range n {
			t.ranks[id+i] = InUse
		}
		return nil
	}
	w.onInvalid = func(uint64, error) { t.s.out.BrokenPages++ }
	w.leaf = func(p page) error {
		for _, e := range p.elements {
			row(e)
		}
		return nil
	}
	return w.walk(root, bounds{}, 0)
}

// readCatalog reads the numbers of the sessions in the tree below a root.
func (t *tree) readCatalog(root uint64) (c catalog) {
	numbered := map[string]struct {
		*numbers
		kind
	}{string(bucketSessions): {&c.entries, kindEntry}, string(bucketHeads): {&c.heads, kindHead}, string(bucketUnlinked): {&c.unlinked, kindUnlinked}}
	for _, of := range numbered {
		of.seen = map[uint64]bool{}
	}
	rootsValid := true
	valid := t.walk(root, func(bucket element) {
		root, inline, err := bucketRoot(bucket)
		if err != nil {
			rootsValid = false
			return
		}
		of, names := numbered[string(bucket.key)]
		valid := true
		row := func(e element) {
			if !names {
				return
			}
			number, ok := unseal(of.kind, e.key, e.value)
			if of.kind == kindUnlinked {
				number = e.key
			}
			if ok = ok && len(number) >= 8; ok {
				of.seen[binary.BigEndian.Uint64(number)] = true
			}
			valid = valid && ok
		}
		if root != 0 {
			valid = t.walk(root, row) && valid
		}
		for _, e := range inline.elements {
			row(e)
		}
		if names {
			of.complete = valid
		}
		if bytes.Equal(bucket.key, bucketSessions) {
			c.sequence, c.complete = binary.NativeEndian.Uint64(bucket.value[8:]), true
		}
	})
	c.complete = c.complete && valid && rootsValid && c.unlinked.complete
	return c
}

// readFreePages reads the free list and reports whether it is valid.
func (t *tree) readFreePages(current *metaPage) bool {
	free, err := readFreelist(t.s.src, current)
	if err != nil || free.first+free.pages > t.pageCount {
		return false
	}
	ids := slices.DeleteFunc(free.ids, func(id uint64) bool { return id >= t.pageCount }) // a truncated file lacks pages of its free list
	if slices.ContainsFunc(ids, func(id uint64) bool { return t.ranks[id] == InUse }) {
		return false
	}
	for _, id := range ids {
		t.ranks[id] = Free
	}
	for i := range free.pages {
		t.ranks[free.first+i] = InUse
	}
	return true
}
