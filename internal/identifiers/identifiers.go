// Package identifiers finds words that must be repeated exactly: ids, paths, addresses and numbers. It verifies
// summaries against the events that they cover.
package identifiers

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/words"
)

// minRunes is the minimum length of an identifier. Shorter words can occur by chance.
const minRunes = 5

// Find returns the distinct identifiers of a text, sorted. Identifiers are URLs, e-mail addresses, paths, and words
// with a digit, of at least five characters. They do not include quotes, brackets, the period of a sentence, positions
// in files (such as "12:3" in "a/b.go:12:3"), or text in a script without spaces. A number may have commas between
// thousands. A word that ends in an ellipsis ("…") is cut and is not an identifier.
func Find(text string) []string {
	found := map[string]bool{}
	for id := range FindAll(text) {
		found[id] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// FindAll yields every occurrence of an identifier in a text, in order. See [Find].
func FindAll(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for w := range scan(text, identifierTraits) {
			if w.Kind.IsIdentifier() && !w.Cut && !yield(w.Text) {
				return
			}
		}
	}
}

// Word is a part of a text between separators such as spaces, brackets and quotes.
type Word struct {
	Text  string // the word without punctuation at its ends
	Raw   string // the word with the punctuation at its ends
	Start int    // offset of Raw in the text
	Kind  Kind
	Cut   bool // an ellipsis follows the word
}

// Kind is the kind of a word, which depends only on its form.
type Kind int

// The kinds of words. An address or path with fewer than five characters is Plain or Short.
const (
	Plain Kind = iota
	Name       // has no digit, but an underscore inside, or the form of a host or file name
	Short      // has a digit, but is too short for an identifier
	ID         // has a digit
	Path
	Mail
	Link
)

// IsIdentifier reports whether words of kind k are identifiers.
func (k Kind) IsIdentifier() bool { return k >= ID }

// Words yields the words of a text in order.
func Words(text string) iter.Seq[Word] { return scan(text, ^0) }

// scan yields the words of a text that have at least one of the wanted traits, in order.
func scan(text string, wanted int) iter.Seq[Word] {
	return func(yield func(Word) bool) {
		start, traits := 0, letter
		emit := func(at int, ellipsis bool) bool {
			w := Word{Raw: text[start:at], Start: start, Cut: ellipsis}
			w.Text = strings.TrimRight(trim(w.Raw), "/~")
			w.Kind = kindOf(w.Text, traits)
			if text := withoutPosition(w.Text, w.Kind); text != w.Text {
				w.Text, w.Kind = text, kindOf(text, digitTrait(text))
			}
			return w.Text == "" || w.Kind < Short && wanted == identifierTraits || yield(w)
		}
		for i := 0; i < len(text); {
			trait := traitOf[text[i]]
			for trait&(separator|notASCII) == 0 { // the most frequent case
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
			if traits&wanted != 0 && !emit(i, trait&omission != 0) {
				return
			}
			traits = letter
			i += size
			start = i
		}
		if traits&wanted != 0 {
			emit(len(text), false)
		}
	}
}

// Traits of characters. A word has the traits of its characters.
const (
	separator = 1 << iota // the character cannot be part of an identifier
	omission              // the character is a separator and marks an omission
	digit
	slash
	at
	notASCII
	letter // every word has this trait

	identifierTraits = digit | slash | at // a word with none of these is not an identifier
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
		return separator | omission
	case r < 0x250 && unicode.IsLetter(r):
		return 0
	case unicode.IsDigit(r):
		return digit
	case unicode.IsSpace(r), unicode.IsControl(r), strings.ContainsRune("“”‘’«»„‹›×→", r), words.IsUnspaced(r):
		return separator
	}
	return 0
}

// groupsThousands reports whether the comma separates thousands of the number that begins at offset start.
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
	// A currency symbol or a sign may precede the first digit, but a list of numbers may not.
	if before < start {
		return start == 0 || text[start-1] != ','
	}
	return before == start && text[before] == '-' ||
		!isWordRune(lastRune(text[start:before+1])) && !strings.ContainsRune("./:_-@#", rune(text[before]))
}

func lastRune(text string) rune {
	r, _ := utf8.DecodeLastRuneInString(text)
	return r
}

// kindOf returns the kind of a word with the given traits.
func kindOf(word string, traits int) Kind {
	long := len(word) >= minRunes && (len(word) >= minRunes*utf8.UTFMax || utf8.RuneCountInString(word) >= minRunes)
	switch kind := addressKind(word); {
	case long && kind != Plain:
		return kind
	case long && traits&digit != 0:
		return ID
	case traits&digit != 0:
		return Short
	case strings.Contains(word[min(1, len(word)):], "_") || isHost(word):
		return Name
	}
	return Plain
}

// addressKind returns the kind of a URL, e-mail address or path. For any other word it returns Plain.
func addressKind(word string) Kind {
	slash := strings.LastIndexByte(word, '/')
	switch {
	case strings.Contains(word, "://"):
		return Link
	case strings.Contains(word, "@"):
		if name, host, _ := strings.Cut(word, "@"); name != "" && strings.Contains(host, ".") {
			return Mail
		}
	// A path has a slash between names. "and/or" is not a path.
	case strings.Count(word, "/") > 1, slash == 0 && len(word) > 1, slash > 0 && strings.Contains(word[slash:], "."):
		return Path
	}
	return Plain
}

// withoutPosition returns a word without the position in a file that compilers and grep add to it. After a path, the
// position is the line and the column, and the first word of the line's text may follow. Before a word, it is the
// line.
func withoutPosition(word string, kind Kind) string {
	first, rest, found := strings.Cut(word[strings.LastIndexByte(word, '/')+1:], ":")
	switch {
	case !found:
	case kind == Path && isHost(first) && !strings.ContainsAny(rest, "./-"):
		return word[:len(word)-len(rest)-1]
	case kind == ID && strings.Trim(first, "0123456789") == "" && rest != "" && rest[0]-'0' > 9:
		return trim(rest)
	}
	return word
}

// digitTrait returns the trait digit if the word has a digit, and 0 otherwise.
func digitTrait(word string) int {
	if strings.ContainsFunc(word, unicode.IsDigit) {
		return digit
	}
	return 0
}

// isHost reports whether a word ends like the name of a host or a file, with letters, a dot, and letters.
func isHost(word string) bool {
	i := strings.LastIndexByte(word, '.')
	return i > 0 && i < len(word)-2 && len(word)-i <= 7 && !strings.ContainsFunc(word[i+1:], func(r rune) bool { return !unicode.IsLetter(r) })
}

// trim removes the characters before the first and after the last letter, digit, "/" or "~" of a word.
func trim(raw string) string {
	isEdge := func(c byte) bool { return c < utf8.RuneSelf && !isWordByte(c) && c != '/' && c != '~' }
	for len(raw) > 0 && isEdge(raw[0]) {
		raw = raw[1:]
	}
	for len(raw) > 0 && isEdge(raw[len(raw)-1]) {
		raw = raw[:len(raw)-1]
	}
	if raw == "" || raw[0] < utf8.RuneSelf && raw[len(raw)-1] < utf8.RuneSelf {
		return raw
	}
	return strings.TrimFunc(raw, func(r rune) bool { return !isWordRune(r) && r != '/' && r != '~' })
}

func isWordByte(c byte) bool {
	return c-'0' <= 9 || c-'a' < 26 || c-'A' < 26
}

// Occurs reports whether id occurs in a text and is not part of a longer word there. An empty id does not occur. The
// running time is linear in the length of the text. To search for several identifiers, use an [Index].
func Occurs(text, id string) bool {
	for from := 0; id != ""; {
		i := strings.Index(text[from:], id)
		if i < 0 {
			return false
		}
		i += from
		if isWholeWord(text, i, i+len(id)) {
			return true
		}
		from = i + 1
	}
	return false
}

// isWholeWord reports whether neither end of text[start:end] is inside a word.
func isWholeWord(text string, start, end int) bool {
	return isWordStart(text, start) && !isWordRune(firstRune(text[end:]))
}

// isWordStart reports whether the character before the offset start is not part of a word.
func isWordStart(text string, start int) bool { return !isWordRune(lastRune(text[:start])) }

func firstRune(text string) rune {
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return isWordByte(byte(r))
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) && !words.IsUnspaced(r)
}
