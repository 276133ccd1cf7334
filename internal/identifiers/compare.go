package identifiers

import "slices"

// Comparison says how a text that was made of another one, or that stands for it, compares
// with it, word for word.
type Comparison struct {
	// Held is how many identifiers the other text has, and Lost which of these stand nowhere
	// in this one, in the order of that text.
	Held int
	Lost []string

	// Invented are the identifiers of this text that stand nowhere in the other one; and
	// words that an ellipsis cuts, if no word there begins so.
	Invented []string

	// Numbers are words of this text that stand nowhere in the other one and need not be
	// invented: numbers that are sums, differences or multiples of numbers there, or the same
	// ones written in another way, and words with a digit that are too short for an
	// identifier, such as counts.
	Numbers []string
}

// Compare compares a text with the one that it is about. It takes time linear in both.
func Compare(text, about *Index) Comparison {
	c := Comparison{Held: about.Len()}
	for _, id := range about.order {
		if !text.Has(id) {
			c.Lost = append(c.Lost, id)
		}
	}
	c.Invented, c.Numbers = text.strange(about)
	tries := 0
	c.Invented = slices.DeleteFunc(c.Invented, func(id string) bool {
		tries++
		derived := tries <= maxDerived && about.derives(id)
		if derived {
			c.Numbers = append(c.Numbers, id)
		}
		return derived
	})
	return c
}

// Of so many words it is tried whether they can be reckoned: each takes a look at all numbers.
const maxDerived = 64

// stands reports whether a word stands in the text, or, if it is cut, one that begins so.
func (x *Index) stands(w word) bool {
	return x.Has(w.text) || w.cut && x.hasBeginning(w.text)
}

// strange returns which identifiers and short words of the text do not stand in another one,
// each once.
func (x *Index) strange(about *Index) (identifiers, shorts []string) {
	seen := make(map[word]bool)
	for w := range words(x.text) {
		if _, there := about.words[w.text]; there || seen[w] {
			continue
		}
		seen[w] = true
		if about.stands(w) {
			continue
		}
		if w.kind == short {
			shorts = append(shorts, w.text)
		} else {
			identifiers = append(identifiers, w.text)
		}
	}
	return identifiers, shorts
}
