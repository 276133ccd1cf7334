package identifiers

import "slices"

// Comparison is the result of comparing a summary with its source, which is the text that it summarises.
type Comparison struct {
	// Identifiers is the number of identifiers in the source. Lost are the identifiers of the source that do not occur
	// in the summary, in the order of the source.
	Identifiers int
	Lost        []string

	// Invented are the identifiers of the summary that do not occur in the source. A word that an ellipsis cuts also
	// counts as invented, unless a word of the source begins with it.
	Invented []string

	// Numbers are words of the summary that do not occur in the source but are probably derived from it. They are sums,
	// differences or multiples of the source's numbers, the same numbers in another spelling, and words with a digit
	// that are too short to be an identifier, such as counts.
	Numbers []string
}

// Compare compares the summary text with its source. A word may differ in case, a leading v, or separators. A
// hash may be shortened, a unit may be separated from its number, and a date may be written in words. The running time
// is linear in the size of both texts.
func Compare(text, source *Index) Comparison {
	c := Comparison{Identifiers: source.Len()}
	for _, id := range source.order {
		if !text.Has(id) && !text.hasSpelling(id) {
			c.Lost = append(c.Lost, id)
		}
	}
	c.Invented, c.Numbers = text.unknownWords(source)
	tries := 0
	c.Invented = slices.DeleteFunc(c.Invented, func(id string) bool {
		tries++
		if source.hasSpelling(id) {
			return true
		}
		derived := tries <= maxDerived && source.isDerived(id)
		if derived {
			c.Numbers = append(c.Numbers, id)
		}
		return derived
	})
	return c
}

// Invents reports whether a text has identifiers that do not occur in its source.
func Invents(text string, source *Index) bool {
	invented, _ := NewIndex(text).unknownWords(source)
	return len(invented) > 0
}

// maxDerived is the maximum number of words that are tested for being derived from numbers of the source, because
// each test compares a word with all of these numbers.
const maxDerived = 64

// occurs reports whether a word occurs in the text. If the word is cut, it is enough that a word of the text begins
// with it.
func (x *Index) occurs(w Word) bool {
	return x.Has(w.Text) || w.Cut && x.hasPrefix(w.Text)
}

// unknownWords returns the distinct identifiers and short words of the text that do not occur in its source.
func (x *Index) unknownWords(source *Index) (identifiers, shorts []string) {
	seen := make(map[Word]bool)
	for w := range scan(x.text, identifierTraits) {
		w = Word{Text: w.Text, Kind: w.Kind, Cut: w.Cut}
		if _, ok := source.words[w.Text]; ok || seen[w] {
			continue
		}
		seen[w] = true
		switch {
		case source.occurs(w):
		case w.Kind == Short:
			shorts = append(shorts, w.Text)
		default:
			identifiers = append(identifiers, w.Text)
		}
	}
	return identifiers, shorts
}
