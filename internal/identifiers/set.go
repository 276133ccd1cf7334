package identifiers

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// Set finds identifiers in texts. It is immutable and safe for concurrent use. The zero Set finds nothing.
type Set struct {
	words      []string // sorted and distinct identifiers
	firstBytes [256]bool
}

// NewSet returns a set of identifiers. It does not retain the slice. Empty identifiers are ignored.
func NewSet(ids []string) *Set {
	s := &Set{words: slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(ids))), func(id string) bool { return id == "" })}
	for _, w := range s.words {
		s.firstBytes[w[0]] = true
	}
	return s
}

// In yields the byte ranges in which identifiers of the set occur in a text, in ascending order. See [Occurs]. If
// occurrences overlap, Set.In yields only the first. If several occurrences begin at the same offset, it yields only
// the longest.
func (s *Set) In(text string) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for i := 0; i < len(text); {
			end := i
			if s.firstBytes[text[i]] && isWordStart(text, i) {
				s.match(text[i:], func(n int) { end = i + n })
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

// Occurring returns the identifiers of the set that occur in at least one of the texts. See [Occurs].
func (s *Set) Occurring(texts iter.Seq[string]) map[string]bool {
	found := map[string]bool{}
	for text := range texts {
		if len(found) == len(s.words) {
			break
		}
		for i := range len(text) {
			if s.firstBytes[text[i]] && isWordStart(text, i) {
				s.match(text[i:], func(n int) { found[text[i:i+n]] = true })
			}
		}
	}
	return found
}

// match finds the identifiers of the set that are whole words at the start of the text. It calls do with the length
// of each of these identifiers, in ascending order.
func (s *Set) match(text string, do func(length int)) {
	candidates := s.words // words that share the first n bytes with the text
	for n := 0; ; n++ {
		if len(candidates) > 0 && len(candidates[0]) == n {
			if !isWordRune(firstRune(text[n:])) {
				do(n)
			}
			candidates = candidates[1:]
		}
		switch {
		case len(candidates) == 0 || n == len(text):
			return
		case len(candidates) == 1:
			if w := candidates[0]; strings.HasPrefix(text, w) && !isWordRune(firstRune(text[len(w):])) {
				do(len(w))
			}
			return
		}
		c := text[n]
		from := sort.Search(len(candidates), func(i int) bool { return candidates[i][n] >= c })
		to := from + sort.Search(len(candidates)-from, func(i int) bool { return candidates[from+i][n] > c })
		candidates = candidates[from:to]
	}
}
