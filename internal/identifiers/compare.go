package identifiers

import "slices"

// Comparison compares the words of a text with those of another one, which it summarises.
type Comparison struct {
	// Identifiers is how many identifiers the other text has, and Lost those of them that do not occur
	// in this one, in the order of the other text.
	Identifiers int
	Lost        []string

	// Invented are the identifiers of this text that do not occur in the other one, and
	// words before an ellipsis, unless a word there begins with them.
	Invented []string

	// Numbers are words of this text that do not occur in the other one and need not be
	// invented: sums, differences or multiples of numbers there, or the same
	// numbers in another spelling, and words with a digit that are too short for an
	// identifier, such as counts.
	Numbers []string
}

// Compare compares a text with the one that it summarises. Other spellings of a word count as the word: its case, a
// leading v, separators, the beginning of a hash, a unit apart from its number, a date in words. It takes time linear in
// both.
func Compare(text, about *Index) Comparison {
	c := Comparison{Identifiers: about.Len()}
	for _, id := range about.order {
		if !text.Has(id) && !text.isAlike(id) {
			c.Lost = append(c.Lost, id)
		}
	}
	c.Invented, c.Numbers = text.strange(about)
	tries := 0
	c.Invented = slices.DeleteFunc(c.Invented, func(id string) bool {
		tries++
		if about.isAlike(id) {
			return true
		}
		derived := tries <= maxDerived && about.derives(id)
		if derived {
			c.Numbers = append(c.Numbers, id)
		}
		return derived
	})
	return c
}

// Invents reports whether a text has identifiers that do not occur in another one.
func Invents(text string, about *Index) bool {
	invented, _ := NewIndex(text).strange(about)
	return len(invented) > 0
}

// maxDerived is the most words that are tested for being derived: each test compares the word with all numbers.
const maxDerived = 64

// occurs reports whether a word occurs in the text. For a cut word, a word that begins with it counts too.
func (x *Index) occurs(w Word) bool {
	return x.Has(w.Text) || w.Cut && x.hasBeginning(w.Text)
}

// strange returns the identifiers and short words of the text that do not occur in the other text,
// each once.
func (x *Index) strange(about *Index) (identifiers, shorts []string) {
	seen := make(map[Word]bool)
	for w := range scan(x.text, telling) {
		w = Word{Text: w.Text, Kind: w.Kind, Cut: w.Cut}
		if _, there := about.words[w.Text]; there || seen[w] {
			continue
		}
		seen[w] = true
		switch {
		case about.occurs(w):
		case w.Kind == Short:
			shorts = append(shorts, w.Text)
		default:
			identifiers = append(identifiers, w.Text)
		}
	}
	return identifiers, shorts
}
