package identifiers

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Index finds words in a text. It is not safe for concurrent use. The total time to build an index and to query it is
// nearly linear in the length of the text.
type Index struct {
	text      string
	words     map[string]bool  // identifiers and short words; the value is true if order contains the word
	order     []string         // distinct identifiers that are not cut, in order of occurrence
	sorted    []string         // keys of words; built on first use
	runs      map[string][]int // start offsets of each run of letters and digits; built on first use
	sums      *numbers         // built on first use
	spellings *spellings       // built on first use
}

// NewIndex makes an index of a text.
func NewIndex(text string) *Index {
	x := &Index{text: text, words: make(map[string]bool, len(text)/64)}
	for w := range scan(text, identifierTraits) {
		whole := w.Kind.IsIdentifier() && !w.Cut
		listed, ok := x.words[w.Text]
		if whole && !listed {
			x.order = append(x.order, w.Text)
		}
		if !ok || whole && !listed {
			x.words[w.Text] = whole
		}
	}
	return x
}

// Identifiers returns the distinct identifiers of the text in order of occurrence. See [Find].
func (x *Index) Identifiers() []string { return slices.Clone(x.order) }

// Contains reports whether the text contains stretch, which need not be a whole word.
func (x *Index) Contains(stretch string) bool { return strings.Contains(x.text, stretch) }

// Len returns the number of distinct identifiers in the text.
func (x *Index) Len() int { return len(x.order) }

// Has reports whether a word with a letter or digit occurs in the text, as defined by [Occurs].
func (x *Index) Has(word string) bool {
	if _, ok := x.words[word]; ok {
		return true
	}
	if x.runs == nil {
		x.runs = make(map[string][]int, len(x.text)/32)
		for start, run := range runs(x.text) {
			x.runs[run] = append(x.runs[run], start)
		}
	}
	var rarest []int // positions of the rarest run of letters and digits in the word
	offset := -1
	for start, run := range runs(word) {
		if at := x.runs[run]; offset < 0 || len(at) < len(rarest) {
			rarest, offset = at, start
		}
	}
	for _, at := range rarest {
		start := at - offset
		if start >= 0 && strings.HasPrefix(x.text[start:], word) && isWholeWord(x.text, start, start+len(word)) {
			return true
		}
	}
	return false
}

// runs yields the runs of letters and digits in a text, with their start offsets.
func runs(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		start := -1
		for i := 0; i < len(text); {
			r, size := rune(text[i]), 1
			if r >= utf8.RuneSelf {
				r, size = utf8.DecodeRuneInString(text[i:])
			}
			switch inside := isWordRune(r); {
			case inside && start < 0:
				start = i
			case !inside && start >= 0:
				if !yield(start, text[start:i]) {
					return
				}
				start = -1
			}
			i += size
		}
		if start >= 0 {
			yield(start, text[start:])
		}
	}
}

// hasPrefix reports whether any word of the text begins with the given string.
func (x *Index) hasPrefix(prefix string) bool {
	if x.sorted == nil {
		for w := range x.words {
			x.sorted = append(x.sorted, w)
		}
		slices.Sort(x.sorted)
	}
	i := sort.SearchStrings(x.sorted, prefix)
	return i < len(x.sorted) && strings.HasPrefix(x.sorted[i], prefix)
}
