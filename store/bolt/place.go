package bolt

import (
	"bytes"
	"slices"
)

// Damage may give a record the key of another one: with another session's number, or another
// seq. Its form does not tell which session it is of. The keys beside it do.

// seek moves the cursor to a record, and returns its key, or nil if there is none in its place
// among the keys beside it. A search may go astray if a page has a key out of order, and then
// it looks around.
func (s session) seek(c rowCursor, seq uint64) (k, v []byte) {
	key := s.key(number(seq))
	begin := func() (k, v []byte) {
		if k, v = c.Seek(key); k == nil {
			k, v = c.Last()
		}
		return k, v
	}
	found := func(at, from int) (k, v []byte) {
		k, v = begin()
		for ; from < at; from++ {
			k, v = c.Next()
		}
		for ; from > at; from-- {
			k, v = c.Prev()
		}
		return k, v
	}
	k, _ = begin()
	if bytes.Equal(k, key) {
		if seq > 1 && s.seqOf(beside(c.Prev)) == seq-1 { // as nearly always
			return begin()
		}
		if keys, at := keysAround(c, begin, 2); s.fits(keys, at, seq) {
			return found(at, at)
		}
	} else if s.head == nil {
		return nil, nil // it may well be behind the log's end
	}
	keys, from := keysAround(c, begin, around)
	for at := range keys {
		if s.fits(keys, at, seq) {
			return found(at, from)
		}
	}
	return nil, nil
}

// keysAround returns the key where a cursor begins, at an index, and up to n on each side. They
// may be in pages of other sessions, of which those that cannot be read are left out.
func keysAround(c rowCursor, begin func() (k, v []byte), n int) (keys [][]byte, at int) {
	walk := func(step func() (k, v []byte)) {
		for range n {
			k := beside(step)
			if k == nil {
				return
			}
			keys = append(keys, k)
		}
	}
	begin()
	walk(c.Prev)
	slices.Reverse(keys)
	at = len(keys)
	k, _ := begin()
	keys = append(keys, k)
	walk(c.Next)
	return keys, at
}

// beside returns the key that a step leads to. It may be in a page of other sessions: if that
// cannot be read there is none.
func beside(step func() (k, v []byte)) (k []byte) {
	defer func() {
		if recover() != nil {
			k = nil
		}
	}()
	k, _ = step()
	return k
}

// fits reports whether a key is a record's, and in its place: beside the record before it or
// after it, or in order but for at most one key on each side.
func (s session) fits(keys [][]byte, at int, seq uint64) bool {
	if s.seqOf(keys[at]) != seq {
		return false
	}
	before, after := keys[max(0, at-2):at], keys[at+1:min(at+3, len(keys))]
	if len(before) > 0 && seq > 1 && s.seqOf(before[len(before)-1]) == seq-1 || len(after) > 0 && s.seqOf(after[0]) == seq+1 {
		return true
	}
	below := func(k []byte) bool { return bytes.Compare(k, keys[at]) < 0 }
	above := func(k []byte) bool { return bytes.Compare(k, keys[at]) > 0 }
	return (len(before) == 0 || slices.ContainsFunc(before, below)) && (len(after) == 0 || slices.ContainsFunc(after, above))
}
