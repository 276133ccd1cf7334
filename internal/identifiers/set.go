package identifiers

import (
	"iter"
	"slices"
	"sort"
)

// Set finds where identifiers stand in texts. It is immutable, and may be used by any number of
// goroutines. The zero Set finds none.
type Set struct {
	words []string // sorted, each once
	begin [256]bool
}

// NewSet returns the set of some identifiers. It keeps no reference to the slice. An empty one
// among them stands nowhere.
func NewSet(ids []string) *Set {
	s := &Set{words: slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(ids))), func(id string) bool { return id == "" })}
	for _, w := range s.words {
		s.begin[w[0]] = true
	}
	return s
}

// In yields where identifiers of the set stand in a text, as [Stands] has it: where they begin
// and end, in bytes, ascending. Of those that overlap it is the one that begins first, and of
// these the longest.
func (s *Set) In(text string) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for i := 0; i < len(text); {
			end := i
			if s.begin[text[i]] && begins(text, i) {
				end += s.longest(text[i:])
			}
			if end == i {
				i++
				continue
			}
			if !yield(i, end) {
				return
			}
			i = end
		}
	}
}

// longest is how long the longest word is with which a text begins, and which ends there.
func (s *Set) longest(text string) (length int) {
	left := s.words // those that begin as the text does up to n
	for n := 0; ; n++ {
		if len(left) > 0 && len(left[0]) == n {
			if !partOfWord(firstRune(text[n:])) {
				length = n
			}
			left = left[1:]
		}
		if len(left) == 0 || n == len(text) {
			return length
		}
		c := text[n]
		from := sort.Search(len(left), func(i int) bool { return left[i][n] >= c })
		to := from + sort.Search(len(left)-from, func(i int) bool { return left[from+i][n] > c })
		left = left[from:to]
	}
}
