// Package identifiers finds in texts what is of use only word for word: ids, paths,
// addresses, numbers. By it summaries are held against what they stand for.
package identifiers

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// leastRunes is how long an identifier is at least: shorter ones stand anywhere.
const leastRunes = 5

// In returns the identifiers of a text: URLs, e-mail addresses, paths, and words with a
// digit in them, of five characters and more, each once, sorted. What stands around them,
// such as quotes, brackets and the period of a sentence, is no part, and neither is text of
// a script without spaces between its words. A number may have commas for thousands. A word
// that ends in an ellipsis ("…") is cut, and is none.
func In(text string) []string {
	found := map[string]bool{}
	for id := range All(text) {
		found[id] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// All yields the identifiers of a text as [In] finds them, in their order, each as often as it
// stands there.
func All(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for w := range words(text) {
			if w.kind == identifier && !w.cut && !yield(w.text) {
				return
			}
		}
	}
}

// word is one that is of use only word for word.
type word struct {
	text string
	kind kind
	cut  bool // an ellipsis stands behind it
}

type kind int

const (
	identifier kind = iota
	short           // it has a digit, but is too short for an identifier
)

// words yields the identifiers and the short words with a digit of a text, in their order.
func words(text string) iter.Seq[word] {
	return func(yield func(word) bool) {
		start, traits := 0, 0
		end := func(at int, ellipsis bool) bool {
			raw := text[start:at]
			w, ok := classify(raw, traits)
			return !ok || yield(word{w.text, w.kind, ellipsis})
		}
		for i := 0; i < len(text); {
			trait := traitOf[text[i]]
			for trait&(separator|notASCII) == 0 { // nearly always
				traits |= int(trait)
				if i++; i == len(text) {
					break
				}
				trait = traitOf[text[i]]
			}
			if i == len(text) {
				break
			}
			size := 1
			if trait == notASCII {
				var r rune
				r, size = utf8.DecodeRuneInString(text[i:])
				trait = traitOfRune(r)
			}
			if trait&separator == 0 || text[i] == ',' && groupsThousands(text, start, i) {
				traits |= int(trait)
				i += size
				continue
			}
			if traits&telling != 0 && !end(i, trait&mark != 0) {
				return
			}
			traits = 0
			i += size
			start = i
		}
		if traits&telling != 0 {
			end(len(text), false)
		}
	}
}

// Traits of characters.
const (
	separator = 1 << iota // no part of an identifier
	mark                  // a separator that says that something is missing
	digit
	slash
	at
	notASCII

	telling = digit | slash | at // a word without any of these is no identifier
)

var traitOf = func() (t [256]uint8) {
	for c := range t {
		switch r := rune(c); {
		case c >= utf8.RuneSelf:
			t[c] = notASCII
		case unicode.IsSpace(r), unicode.IsControl(r), strings.ContainsRune(`"'`+"`"+`()[]{}<>|,;=\*`, r):
			t[c] = separator
		case unicode.IsDigit(r):
			t[c] = digit
		case r == '/':
			t[c] = slash
		case r == '@':
			t[c] = at
		}
	}
	return t
}()

func traitOfRune(r rune) uint8 {
	switch {
	case r == '…':
		return separator | mark
	case r < 0x250 && unicode.IsLetter(r):
		return 0
	case unicode.IsDigit(r):
		return digit
	case unicode.IsSpace(r), unicode.IsControl(r), strings.ContainsRune("“”‘’«»„‹›×→", r), isUnspaced(r):
		return separator
	}
	return 0
}

// isUnspaced reports whether words of the rune's script stand without spaces, or it is
// punctuation of such a script.
func isUnspaced(r rune) bool {
	return r >= 0x0e00 && (r >= 0x3000 && r <= 0x303f || r >= 0xff00 && r <= 0xff0f || r >= 0xff1a && r <= 0xff20 ||
		unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

// groupsThousands reports whether the comma at an index parts thousands of a number that
// the word from start on is so far.
func groupsThousands(text string, start, comma int) bool {
	isDigit := func(i int) bool { return i >= start && i < len(text) && text[i]-'0' <= 9 }
	if !isDigit(comma+1) || !isDigit(comma+2) || !isDigit(comma+3) || isDigit(comma+4) {
		return false
	}
	n := 0
	for isDigit(comma - 1 - n) {
		n++
	}
	if n == 0 || n > 3 {
		return false
	}
	before := comma - 1 - n
	if before >= start && text[before] == ',' {
		return n == 3
	}
	// A currency or a sign may stand before the first digit, but not a list.
	if before < start {
		return start == 0 || text[start-1] != ','
	}
	return before == start && text[before] == '-' ||
		!partOfWord(lastRune(text[start:before+1])) && !strings.ContainsRune("./:_-@#", rune(text[before]))
}

func lastRune(text string) rune {
	r, _ := utf8.DecodeLastRuneInString(text)
	return r
}

// classify trims punctuation from a word's ends and says which kind of identifier is left, if any.
func classify(raw string, traits int) (w word, ok bool) {
	text := strings.TrimRight(trim(raw), "/~")
	if text == "" {
		return w, false
	}
	hasDigit := traits&digit != 0
	switch long := len(text) >= leastRunes && (len(text) >= leastRunes*utf8.UTFMax || utf8.RuneCountInString(text) >= leastRunes); {
	case long && (hasDigit || isName(text)):
		return word{text: text}, true
	case hasDigit && !long:
		return word{text: text, kind: short}, true
	}
	return w, false
}

// trim cuts a word's ends up to the first and last letter, digit, "/" or "~".
func trim(raw string) string {
	edge := func(c byte) bool { return c < utf8.RuneSelf && !isWordByte(c) && c != '/' && c != '~' }
	for len(raw) > 0 && edge(raw[0]) {
		raw = raw[1:]
	}
	for len(raw) > 0 && edge(raw[len(raw)-1]) {
		raw = raw[:len(raw)-1]
	}
	if raw == "" || raw[0] < utf8.RuneSelf && raw[len(raw)-1] < utf8.RuneSelf {
		return raw
	}
	return strings.TrimFunc(raw, func(r rune) bool { return !partOfWord(r) && r != '/' && r != '~' })
}

func isWordByte(c byte) bool {
	return c-'0' <= 9 || c-'a' < 26 || c-'A' < 26
}

// isName reports whether a word without digits is a URL, an e-mail address or a path.
func isName(word string) bool {
	switch {
	case strings.Contains(word, "://"):
		return true
	case strings.Contains(word, "@"):
		name, host, _ := strings.Cut(word, "@")
		return name != "" && strings.Contains(host, ".")
	}
	// A path has a slash between names; "and/or" is none.
	return strings.Count(word, "/") > 1 || strings.HasPrefix(word, "/") && len(word) > 1 ||
		strings.Contains(word, "/") && strings.Contains(word[strings.LastIndex(word, "/"):], ".")
}

// Stands reports whether an identifier stands in a text and is not a part of a longer word.
// Nothing stands nowhere. It takes time linear in the text; an [Index] is quicker for several.
func Stands(text, id string) bool {
	for from := 0; id != ""; {
		i := strings.Index(text[from:], id)
		if i < 0 {
			return false
		}
		i += from
		if bounded(text, i, i+len(id)) {
			return true
		}
		from = i + 1
	}
	return false
}

// bounded reports whether no word goes on at the ends of a stretch of a text.
func bounded(text string, start, end int) bool {
	return begins(text, start) && !partOfWord(firstRune(text[end:]))
}

// begins reports whether no word goes on at an index of a text.
func begins(text string, start int) bool { return !partOfWord(lastRune(text[:start])) }

func firstRune(text string) rune {
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

func partOfWord(r rune) bool {
	if r < utf8.RuneSelf {
		return isWordByte(byte(r))
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) && !isUnspaced(r)
}
