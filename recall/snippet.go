package recall

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/patch"
)

// DefaultSnippetRunes is how long snippets are unless it is said otherwise.
const DefaultSnippetRunes = 240

// Snippet is a piece of what an event says, in one line.
type Snippet struct {
	Text  string   `json:"text"`
	Marks [][2]int `json:"marks,omitempty"` // what was asked for: where in the text it begins and ends, in bytes, ascending
}

// SnippetOf returns the piece of what an event says, of at most so many characters, in which most
// of what is asked for stands, or of similar words if nothing of it does: the beginning if there are
// none either. White space is one space. An
// ellipsis stands where something was cut off. 0 characters mean [DefaultSnippetRunes]. shown leaves
// out what [Filter.Shown] does.
func SnippetOf(e *patch.Event, t Terms, runes int, shown bool) Snippet {
	if runes <= 0 {
		runes = DefaultSnippetRunes
	}
	said := Text(e)
	if !shown {
		said += privateText(e)
	}
	text := strings.Join(strings.Fields(said), " ")
	marks := t.marks(text, false)
	if len(marks) == 0 {
		marks = t.marks(text, true)
	}
	start, end := t.window(text, marks, runes)
	s := Snippet{}
	if start > 0 {
		s.Text = "…"
	}
	shift := len(s.Text) - start
	s.Text += text[start:end]
	for _, m := range marks {
		if m.start >= start && m.end <= end {
			s.Marks = append(s.Marks, [2]int{m.start + shift, m.end + shift})
		}
	}
	if end < len(text) {
		s.Text += "…"
	}
	return s
}

// mark is where something stands that is asked for.
type mark struct {
	start, end int
	what       int // which of the terms
}

// marks returns where in a text what is asked for stands, or if similar is set, words similar to it,
// ascending, no two over each other.
func (t Terms) marks(text string, similar bool) []mark {
	what := make(map[term]int, len(t.words))
	for i, w := range t.words {
		what[w] = i
		if similar {
			for _, form := range t.similar[w] {
				what[form] = i
			}
		}
	}
	known := map[term]int{} // of words as they are written: which of the terms, or -1
	asked := func(word []byte, english bool) int {
		as := written(word)
		i, there := known[as]
		if there {
			return i
		}
		w := as
		if english {
			w = stemmed(word)
		}
		if i, there = what[w]; !there {
			i = -1
			if similar {
				for _, form := range forms(word) {
					if of, ok := what[form]; ok {
						i = of
						break
					}
				}
			}
		}
		known[as] = i
		return i
	}
	var all []mark
	var s splitter
	for start := 0; start < len(text); {
		r, size := utf8.DecodeRuneInString(text[start:])
		if !partOfWord(r) {
			start += size
			continue
		}
		end := start + size
		if unspaced(r) { // a pair at a time
			if next, more := utf8.DecodeRuneInString(text[end:]); unspaced(next) {
				if i, ok := what[written([]byte(text[start:end+more]))]; ok {
					all = append(all, mark{start, end + more, i})
				}
			} else if i, ok := what[written([]byte(text[start:end]))]; ok {
				all = append(all, mark{start, end, i})
			}
			start = end
			continue
		}
		for end < len(text) {
			r, size := utf8.DecodeRuneInString(text[end:])
			if !partOfWord(r) || unspaced(r) {
				break
			}
			end += size
		}
		found := -1
		s.words(text[start:end], func(word []byte, english bool) {
			if found < 0 {
				found = asked(word, english)
			}
		})
		if found >= 0 {
			all = append(all, mark{start, end, found})
		}
		start = end
	}
	for i, id := range t.written {
		for from := 0; ; {
			at := strings.Index(text[from:], id)
			if at < 0 {
				break
			}
			start := from + at
			from = start + len(id)
			if before, _ := utf8.DecodeLastRuneInString(text[:start]); start > 0 && partOfWord(before) {
				continue
			}
			if after, _ := utf8.DecodeRuneInString(text[from:]); from < len(text) && partOfWord(after) {
				continue
			}
			all = append(all, mark{start, from, len(t.words) + i})
		}
	}
	slices.SortStableFunc(all, func(a, b mark) int { // of two over each other the longer one, or the identifier
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(b.what, a.what))
	})
	apart := all[:0]
	for _, m := range all {
		last := len(apart) - 1
		switch {
		case last >= 0 && m.start < apart[last].end && m.end > apart[last].end: // pairs that share a character
			apart[last].end = m.end
		case last < 0 || m.start >= apart[last].end:
			apart = append(apart, m)
		}
	}
	return apart
}

func partOfWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Mn, r)
}

// window returns the stretch of so many characters whose different marks count most, identifiers as in
// the ranking, and of such stretches the first.
func (t Terms) window(text string, marks []mark, runes int) (start, end int) {
	if utf8.RuneCountInString(text) <= runes {
		return 0, len(text)
	}
	best, from := -1, 0
	for i := range marks {
		different, count := map[int]bool{}, 0
		limit := marks[i].start + advance(text[marks[i].start:], runes*3/4)
		for _, m := range marks[i:] {
			if m.end > limit {
				break
			}
			if different[m.what] {
				continue
			}
			different[m.what] = true
			if count++; m.what >= len(t.words) {
				count += idWeight - 1
			}
		}
		if count > best {
			best, from = count, marks[i].start
		}
		if i == maxWindows {
			break
		}
	}
	// A quarter of it comes before the first mark, so that the reader sees where it belongs.
	start = from
	for n := runes / 4; n > 0 && start > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(text[:start])
		start -= size
	}
	if start > 0 {
		if space := strings.IndexByte(text[start:from], ' '); space >= 0 {
			start += space + 1
		}
	}
	end = start + advance(text[start:], runes)
	if end == len(text) {
		return start, end
	}
	if space := strings.LastIndexByte(text[start:end], ' '); space > (end-start)/2 {
		end = start + space
	}
	return start, end
}

// So many places are tried for a window.
const maxWindows = 1000

// advance is how many bytes the first characters of a text take.
func advance(text string, runes int) int {
	for i := range text {
		if runes == 0 {
			return i
		}
		runes--
	}
	return len(text)
}
