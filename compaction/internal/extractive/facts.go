package extractive

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
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
	leastFact = 5   // below it, a number or code may be met by chance
)

// formOf is the form of a value.
func formOf(value string) factForm {
	for _, w := range words(value) {
		if isUnique(value[w.start:w.end]) {
			return unique
		}
	}
	return common
}

func isUnique(s string) bool {
	if !isReference(s) || utf8.RuneCountInString(s) < leastFact || isClock(s) {
		return false
	}
	return hasDigit(s) || strings.Contains(s, "://") || isPath(s) || isMail(s)
}

// isClock reports whether the word is a time of day, or a ratio.
func isClock(s string) bool {
	return strings.Contains(s, ":") && !strings.ContainsFunc(s, func(r rune) bool { return r != ':' && !unicode.IsDigit(r) })
}

// isMail reports whether the word has a name before an @, and a host behind it.
func isMail(s string) bool {
	name, host, found := strings.Cut(s, "@")
	return found && name != "" && isHost(host)
}

// isHost reports whether the word ends as hosts and files do: letters, a point, letters.
func isHost(s string) bool {
	i := strings.LastIndexByte(s, '.')
	return i > 0 && i < len(s)-2 && len(s)-i <= 7 && isLetters(s[i+1:])
}

// bare is the value without the word before it that says what it is.
func bare(value string) string {
	if before, number, found := strings.Cut(value, " "); found && isNaming(before) && isUnique(number) {
		return number
	}
	return value
}

// groupOf is the group of a reference.
func groupOf(s string) string {
	switch {
	case strings.Contains(s, "://"):
		return linkGroup
	case isMail(s):
		return mailGroup
	case isDate(s):
		return dateGroup
	case isAmount(s):
		return numberGroup
	case isPath(s):
		return pathGroup
	}
	return idGroup
}

// findFacts finds the facts of a text in any language, by the looks of its words.
func findFacts(text string) []fact {
	var facts []fact
	all := words(text)
	for i, w := range all {
		s := text[w.start:w.end]
		if len(s) > 4*maxFact || utf8.RuneCountInString(s) > maxFact || !isReference(s) {
			continue
		}
		f := fact{key: groupOf(s), value: s, form: common}
		if isUnique(s) {
			f.form = unique
		}
		// A number alone says little: the word before belongs to it.
		if f.key == numberGroup && i > 0 && w.joined && isNaming(text[all[i-1].start:all[i-1].end]) {
			f.value = text[all[i-1].start:w.end]
		}
		facts = append(facts, f)
	}
	return facts
}

// word is a stretch of a text between spaces, brackets, quotes and the like, without the
// punctuation at its ends.
type word struct {
	start, end int
	joined     bool // to the word before, by a space alone
}

// Punctuation at the ends of words.
const (
	leading  = "*:!?.,-–—•¿¡#"
	trailing = "*:!?.,-–—•。！？\\"
)

func words(text string) []word {
	var all []word
	for start := 0; start < len(text); {
		n := strings.IndexFunc(text[start:], splitsWords)
		if n < 0 {
			n = len(text) - start
		}
		raw := text[start : start+n]
		if w := trimWord(raw); w != "" && !(raw[0] == '/' && start > 0 && text[start-1] == '<') { // no closing tag
			from := start + strings.Index(raw, w)
			joined := len(all) > 0 && text[all[len(all)-1].end:from] == " "
			all = append(all, word{from, from + len(w), joined})
		}
		_, size := utf8.DecodeRuneInString(text[start+n:])
		start += n + size
	}
	return all
}

// trimWord takes punctuation from a word's ends, but not the points of a path or the
// sign of an option or a number.
func trimWord(raw string) string {
	w := strings.TrimRight(raw, trailing)
	if strings.HasPrefix(w, "./") || strings.HasPrefix(w, "../") || strings.HasPrefix(w, "-") && hasDigit(w) {
		return w
	}
	return strings.TrimLeft(w, leading)
}

func splitsWords(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("()[]{}<>\"'`,;|=→…×“”‘’«»„，、；：（）「」", r) || unspaced(r)
}

// isReference reports whether the word is an id, a number, a date, a path, an address,
// or a name as programs have them.
func isReference(s string) bool {
	if s == "" {
		return false
	}
	if hasDigit(s) {
		return utf8.RuneCountInString(s) > 1
	}
	return isMail(s) || strings.Contains(s[1:], "_") || strings.Contains(s, "://") || strings.Contains(s, `\`) || isPath(s) || isHost(s)
}

// isPath reports whether the word has a stroke as paths have it.
func isPath(s string) bool {
	return strings.Contains(s, "/") && strings.ContainsFunc(s, unicode.IsLetter) &&
		(strings.HasPrefix(s, "/") && len(s) > 1 || strings.HasPrefix(s, "~/") || strings.Count(s, "/") > 1 || strings.Contains(s, "."))
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
