package identifiers

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Index knows what stands in a text. It is for one goroutine. To make one takes time linear in
// the text, and what it answers takes no longer than that, however much it is asked.
type Index struct {
	text   string
	words  map[string]struct{} // identifiers and short words
	order  []string            // identifiers that are not cut, each once, in their order
	sorted []string            // the words; made when it is asked for
	left   int                 // so many bytes may be looked through before runs is made
	runs   map[string]places   // where each stretch of letters and digits begins
	next   []place
	sums   *numbers // made when it is asked for
}

// So many times a text is looked through before its stretches are indexed, which takes long;
// or so many bytes of it, for a short one.
const (
	searches = 8
	searched = 1 << 18
)

// NewIndex makes an index of a text.
func NewIndex(text string) *Index {
	x := &Index{text: text, words: make(map[string]struct{}, len(text)/64), left: max(searches*len(text), searched)}
	for w := range words(text) {
		n := len(x.words)
		if x.words[w.text] = struct{}{}; len(x.words) > n && w.kind == identifier && !w.cut {
			x.order = append(x.order, w.text)
		}
	}
	return x
}

// Identifiers returns the identifiers of the text, as [In] finds them, in their order.
func (x *Index) Identifiers() []string { return slices.Clone(x.order) }

// Len is how many identifiers the text has.
func (x *Index) Len() int { return len(x.order) }

// Has reports whether a word stands in the text, as [Stands] does.
func (x *Index) Has(word string) bool {
	if _, ok := x.words[word]; ok {
		return true
	}
	for from := 0; x.left > 0 && word != ""; {
		i := strings.Index(x.text[from:], word)
		if i < 0 {
			x.left -= len(x.text) - from
			return false
		}
		x.left -= i + 1
		if i += from; bounded(x.text, i, i+len(word)) {
			return true
		}
		from = i + 1
	}
	return x.hasByRuns(word)
}

// places are those of one stretch: the last of them, and how many there are.
type places struct{ last, count int }

// place is where a stretch begins, and which place of the same one comes before it.
type place struct{ start, before int }

// hasByRuns looks for a word where its rarest stretch of letters and digits stands.
func (x *Index) hasByRuns(word string) bool {
	if x.runs == nil {
		x.runs = make(map[string]places, len(x.text)/32)
		x.next = make([]place, 1, 1+len(x.text)/6)
		for start, run := range runs(x.text) {
			p := x.runs[run]
			x.next = append(x.next, place{start, p.last})
			x.runs[run] = places{len(x.next) - 1, p.count + 1}
		}
	}
	var rarest places
	offset := -1
	for start, run := range runs(word) {
		if at := x.runs[run]; offset < 0 || at.count < rarest.count {
			rarest, offset = at, start
		}
		if rarest.count == 0 {
			return false
		}
	}
	for at := rarest.last; at > 0; at = x.next[at].before {
		start := x.next[at].start - offset
		if start >= 0 && strings.HasPrefix(x.text[start:], word) && bounded(x.text, start, start+len(word)) {
			return true
		}
	}
	return false
}

// runs yields the stretches of letters and digits of a text, and where they begin.
func runs(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		start := -1
		for i := 0; i < len(text); {
			r, size := rune(text[i]), 1
			if r >= utf8.RuneSelf {
				r, size = utf8.DecodeRuneInString(text[i:])
			}
			switch inside := partOfWord(r); {
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

// hasBeginning reports whether one of the text's words begins so.
func (x *Index) hasBeginning(of string) bool {
	if x.sorted == nil {
		for w := range x.words {
			x.sorted = append(x.sorted, w)
		}
		slices.Sort(x.sorted)
	}
	i := sort.SearchStrings(x.sorted, of)
	return i < len(x.sorted) && strings.HasPrefix(x.sorted[i], of)
}
