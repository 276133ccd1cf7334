package recall

import (
	"strings"
	"unicode"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
)

// MaxQueryBytes is the maximum number of bytes of a query that are read. The rest of the query is ignored.
const MaxQueryBytes = 8 << 10

// maxTerms is the maximum number of words in a query. It is also the maximum number of identifiers and of dates.
// Further terms are ignored.
const maxTerms = 64

// Terms are the words, identifiers and dates of a query. Queries have no syntax: quotes, operators and regular
// expressions are ordinary text. The zero Terms match no event.
type Terms struct {
	terms []queryTerm
	all   bool // whether the query is empty, so that it matches every event that the filter selects
}

// queryTerm is a word, an identifier or a date of a query.
type queryTerm struct {
	kind  kind
	term  term
	forms []term // forms of similar words, used only if no log contains the word
	text  string // text of an identifier that has other characters than letters
	date  date
}

type kind uint8

const (
	kindWord kind = iota
	kindIdentifier
	kindDate // a day or a month
)

// Parse returns the terms of a query. Common words count only if the query has no other words. A query that is empty or
// white space matches all events, newest first.
func Parse(query string) Terms {
	query = strings.ToValidUTF8(query[:min(len(query), MaxQueryBytes)], " ")
	var s splitter
	var words, common, ids []queryTerm
	seen := map[term]bool{}
	add := func(to *[]queryTerm, a queryTerm) {
		if !seen[a.term] && len(*to) < maxTerms {
			seen[a.term] = true
			*to = append(*to, a)
		}
	}
	s.words(query, func(w []byte, _, _ int) {
		a := queryTerm{term: stemmedTerm(w)}
		if isCommon[string(w)] {
			add(&common, a)
		} else if !seen[a.term] {
			a.forms = append(forms(w), compoundParts(w)...)
			add(&words, a)
		}
	})
	if len(words) == 0 {
		words = common
	}
	id := func(text string) {
		a := queryTerm{kind: kindIdentifier, term: identifierTerm(text)}
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
			a.text = text
		}
		if text != "" {
			add(&ids, a)
		}
	}
	for text := range identifiers.FindAll(query) {
		id(text)
	}
	for _, text := range strings.Fields(query) {
		id(text)
		id(strings.Trim(text, "\"'`.,;:!?()[]{}<>“”‘’«»"))
	}
	id(strings.TrimSpace(query))
	t := Terms{terms: append(words, ids...), all: strings.TrimSpace(query) == ""}
	for _, d := range parseDates(query) {
		t.terms = append(t.terms, queryTerm{kind: kindDate, date: d})
	}
	return t
}

// IsZero reports whether the terms match no event in any log.
func (t Terms) IsZero() bool { return len(t.terms) == 0 && !t.all }

// isCommon contains the most frequent words of English, German and Russian.
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
these they this those through to too under up ve very was we were what when where which while who whom whose why will with would you your
aus bei das dem des ein eine einem einen einer eines er es habe haben hatte ich ihr ist mein meine mich mir nicht oder sich sie sind
uns und unser viel viele von wann welche welchem welchen welcher welches wem wen wer werden wie wir wird wo wohin wurde wurden zu zum zur
а бы был была было были в во все вы да для до его ее есть же за и из их к как какая какие каким каких какое какой каком какую когда
кто куда ли мне мои мой моя мы на не нет но о об он она они от по с сколько со так то у чего чем что это этот я`
