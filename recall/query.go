package recall

import (
	"strings"
	"unicode"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
)

// MaxQueryBytes is how much of a query is looked at: what stands behind is ignored.
const MaxQueryBytes = 8 << 10

// maxTerms is how many different words and identifiers of a query are looked for, each: the
// first ones.
const maxTerms = 64

// Terms are what a query asks for: words, and identifiers, which count as they are written. There is
// no syntax: quotes, operators and regular expressions are words and what stands between
// them. The zero Terms ask for nothing.
type Terms struct {
	words       []term
	similar     map[term][]term // the forms of the words
	identifiers []term
	written     []string // the identifiers, without those that are words
	all         bool     // nothing was asked, so whatever the filter leaves is found
}

// Parse returns what a query asks for. Of common English words alone it asks if it has no others. A
// query of white space alone asks for all events, the newest first.
func Parse(query string) Terms {
	query = cut(query, MaxQueryBytes)
	t := Terms{all: strings.TrimSpace(query) == "", similar: map[term][]term{}}
	var s splitter
	seen := map[term]bool{}
	add := func(to *[]term, w term) bool {
		if seen[w] || len(*to) == maxTerms {
			return false
		}
		seen[w] = true
		*to = append(*to, w)
		return true
	}
	var common []term
	s.words(query, func(word []byte, english bool) {
		w := written(word)
		if english {
			w = stemmed(word)
		}
		if english && isCommon[string(word)] {
			add(&common, w)
		} else if add(&t.words, w) {
			t.similar[w] = forms(word)
		}
	})
	if len(t.words) == 0 {
		t.words = common
	}
	id := func(text string) {
		before := len(t.identifiers)
		if text != "" {
			add(&t.identifiers, termOf(seedIdentifier, text))
		}
		if len(t.identifiers) > before && strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
			t.written = append(t.written, text)
		}
	}
	for word := range identifiers.All(query) {
		id(word)
	}
	for _, word := range strings.Fields(query) {
		id(word)
		id(strings.Trim(word, "\"'`.,;:!?()[]{}<>“”‘’«»"))
	}
	id(strings.TrimSpace(query))
	return t
}

// cut returns the beginning of a text, at most the given number of bytes.
func cut(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// IsZero reports whether nothing can be found by the terms.
func (t Terms) IsZero() bool { return len(t.words)+len(t.identifiers) == 0 && !t.all }

// isCommon are words that stand in nearly every English text.
var isCommon = func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(commonWords) {
		all[word] = true
	}
	return all
}()

const commonWords = `a about after all also am an and any are as at be been before being but by can could did do does doing
don for from had has have having he her here hers him his how i if in into is it its just ll me might more most my no nor not
now of on once only or other our out over own re s same she should so some such t than that the their them then there
these they this those through to too under up ve very was we were what when where which while who whom whose why will with would you your`
