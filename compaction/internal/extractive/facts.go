package extractive

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
)

// fact is a piece of a text that is of use only word for word.
type fact struct {
	key   string // what it names: the key that a JSON text has for it, or a group
	value string
	form  factForm
	named bool // the key is that of a value in JSON
}

// factForm says how much a value says by itself.
type factForm int

const (
	unique factForm = iota // one that is hardly met by chance: an id, a path, a date, a long number
	common                 // a name, a short number, a word
)

// Groups of facts that no JSON text has a key for.
const (
	idGroup     = "ids"
	numberGroup = "numbers"
	dateGroup   = "dates"
	pathGroup   = "paths"
	linkGroup   = "links"
	mailGroup   = "e-mails"
)

func isGroup(key string) bool {
	switch key {
	case "", idGroup, numberGroup, dateGroup, pathGroup, linkGroup, mailGroup:
		return true
	}
	return false
}

// Widths in runes.
const (
	maxFact   = 200 // above it, a word is data and not a fact
	leastFact = 5   // below it, a number may be met by chance
)

// formOf returns the form of a value.
func formOf(value string) factForm {
	for w := range identifiers.Words(value) {
		if wordForm(w) == unique {
			return unique
		}
	}
	return common
}

func wordForm(w identifiers.Word) factForm {
	if w.Kind.IsIdentifier() && !isClock(w.Text) {
		return unique
	}
	return common
}

// isClock reports whether the word is a time of day, or a ratio.
func isClock(s string) bool {
	return strings.Contains(s, ":") && !strings.ContainsFunc(s, func(r rune) bool { return r != ':' && !unicode.IsDigit(r) })
}

// bare returns the value without the word before it that says what it is.
func bare(value string) string {
	if before, number, found := strings.Cut(value, " "); found && isNaming(before) && formOf(number) == unique {
		return number
	}
	return value
}

// groupOf returns the group of a word.
func groupOf(w identifiers.Word) string {
	switch {
	case w.Kind == identifiers.Link:
		return linkGroup
	case w.Kind == identifiers.Mail:
		return mailGroup
	case isDate(w.Text):
		return dateGroup
	case isAmount(w.Text):
		return numberGroup
	case w.Kind == identifiers.Path:
		return pathGroup
	}
	return idGroup
}

// findFacts finds the facts of a text in any language, by the looks of its words.
func findFacts(text string) []fact {
	var facts []fact
	before, end := "", 0 // the word before, and where it ends
	for w := range identifiers.Words(text) {
		from := w.Start
		value := trimWord(w.Raw)
		from += strings.Index(w.Raw, value)
		naming, start := before, end-len(before)
		joined := end > 0 && text[end:from] == " "
		before, end = value, from+len(value)
		if w.Kind == identifiers.Plain || utf8.RuneCountInString(w.Text) < 2 || utf8.RuneCountInString(value) > maxFact || w.Raw[0] == '/' && w.Start > 0 && text[w.Start-1] == '<' { // a closing tag
			continue
		}
		f := fact{key: groupOf(w), value: value, form: wordForm(w)}
		// A number alone says little: the word before belongs to it.
		if f.key == numberGroup && joined && isNaming(naming) {
			f.value = text[start:end]
		}
		facts = append(facts, f)
	}
	return facts
}

// Punctuation at the ends of words.
const (
	leading  = "*:!?.,-–—•¿¡#"
	trailing = "*:!?.,-–—•。！？\\"
)

// trimWord takes punctuation from a word's ends, but not the points of a path or the
// sign of an option or a number.
func trimWord(raw string) string {
	w := strings.TrimRight(raw, trailing)
	if strings.HasPrefix(w, "./") || strings.HasPrefix(w, "../") || strings.HasPrefix(w, "-") && hasDigit(w) {
		return w
	}
	return strings.TrimLeft(w, leading)
}

// isAmount reports whether the word is a number, a date or a time, perhaps with a sign
// before or a unit behind.
func isAmount(s string) bool {
	digit := strings.IndexFunc(s, unicode.IsDigit)
	if digit < 0 || strings.ContainsFunc(s[:digit], unicode.IsLetter) || strings.ContainsAny(s, "_/@") {
		return false
	}
	letters := 0
	for _, r := range s {
		if unicode.IsLetter(r) {
			letters++
		}
	}
	return letters <= 2
}

// isDate reports whether the word is three numbers with the same sign between them, or
// begins with such and a T, as times do.
func isDate(s string) bool {
	if i := strings.IndexByte(s, 'T'); i > 0 {
		s = s[:i]
	}
	for _, sign := range []string{"-", "/", "."} {
		if parts := strings.Split(s, sign); len(parts) == 3 && !slices.ContainsFunc(parts, func(p string) bool {
			return p == "" || len(p) > 4 || strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsDigit(r) })
		}) {
			return true
		}
	}
	return false
}

// isNaming reports whether the word may say what a number is: one of three letters hardly
// does in any language, if it is not written large.
func isNaming(s string) bool {
	n := utf8.RuneCountInString(s)
	return isLetters(s) && n <= 24 && (n > 3 || isCapital(s))
}

func isLetters(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

// isCapital reports whether the word begins with a capital, as names do, or has one
// inside.
func isCapital(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	if unicode.IsUpper(r) {
		return len(s) > size
	}
	return unicode.IsLetter(r) && strings.ContainsFunc(s, unicode.IsUpper)
}

func hasDigit(s string) bool { return strings.ContainsFunc(s, unicode.IsDigit) }
