package recall

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/patch"
)

// DefaultSnippetRunes is the default length of snippets in characters.
const DefaultSnippetRunes = 240

// Snippet is an excerpt of an event's text on one line.
type Snippet struct {
	Text  string   `json:"text"`
	Marks [][2]int `json:"marks,omitempty"` // byte ranges in Text of the words of the query, in ascending order
}

// SnippetOf returns the excerpt of an event's text that contains the most terms of a query. It has at most the given
// number of characters. 0 means [DefaultSnippetRunes]. If the text contains no term, similar words count. If it
// contains no similar word, the excerpt is the beginning of the text.
//
// Each run of white space becomes one space. An ellipsis marks a cut. If the argument shown is true, text that no
// model sees is left out, as with [Filter.ShownToModel].
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

// mark is an occurrence of a query term in a text.
type mark struct {
	start, end int
	term       int // index of the term in the query
}

// marks returns the positions of the terms in a text, in order and without overlaps. If similar is set, words that are
// similar to the terms count too.
func (t Terms) marks(text string, similar bool) []mark {
	terms := make(map[term]int, len(t.terms))
	for i, a := range t.terms {
		if a.kind != kindWord {
			continue
		}
		terms[a.term] = i
		for _, form := range a.forms {
			if similar {
				terms[form] = i
			}
		}
	}
	cache := map[term]int{} // key: term of an unstemmed word; value: index of the query term, or -1
	indexOf := func(word []byte) int {
		as := unstemmedTerm(word)
		i, ok := cache[as]
		if ok {
			return i
		}
		if i, ok = terms[stemmedTerm(word)]; !ok {
			i = -1
			if similar {
				for _, form := range forms(word) {
					if of, ok := terms[form]; ok {
						i = of
						break
					}
				}
			}
		}
		cache[as] = i
		return i
	}
	var all []mark
	new(splitter).words(text, func(word []byte, start, end int) {
		if i := indexOf(word); i >= 0 {
			all = append(all, mark{start, end, i})
		}
	})
	for i, a := range t.terms {
		for from := 0; a.text != ""; {
			at := strings.Index(text[from:], a.text)
			if at < 0 {
				break
			}
			start := from + at
			from = start + len(a.text)
			if before, _ := utf8.DecodeLastRuneInString(text[:start]); start > 0 && isWordRune(before) {
				continue
			}
			if after, _ := utf8.DecodeRuneInString(text[from:]); from < len(text) && isWordRune(after) {
				continue
			}
			all = append(all, mark{start, from, i})
		}
	}
	slices.SortStableFunc(all, func(a, b mark) int { // of overlapping marks, prefer the longer mark, then an identifier
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(b.term, a.term))
	})
	merged := all[:0]
	for _, m := range all {
		last := len(merged) - 1
		switch {
		case last >= 0 && m.start < merged[last].end && m.end > merged[last].end: // pairs of characters that share a character
			merged[last].end = m.end
		case last < 0 || m.start >= merged[last].end:
			merged = append(merged, m)
		}
	}
	return merged
}

func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Mn, r)
}

// window returns the excerpt in which the different marks have the greatest total weight. If several excerpts have
// the same weight, it returns the first. Identifiers weigh as much as in the ranking.
func (t Terms) window(text string, marks []mark, runes int) (start, end int) {
	if utf8.RuneCountInString(text) <= runes {
		return 0, len(text)
	}
	best, from := -1, 0
	for i := range marks {
		seen, count := map[int]bool{}, 0
		limit := marks[i].start + advance(text[marks[i].start:], runes*3/4)
		for _, m := range marks[i:] {
			if m.end > limit {
				break
			}
			if seen[m.term] {
				continue
			}
			seen[m.term] = true
			if count++; t.terms[m.term].kind == kindIdentifier {
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
	// A quarter of the excerpt comes before the first mark, as context.
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

// maxWindows limits the number of excerpts that window compares.
const maxWindows = 1000

// advance returns the number of bytes of the first runes characters of a text.
func advance(text string, runes int) int {
	for i := range text {
		if runes == 0 {
			return i
		}
		runes--
	}
	return len(text)
}
