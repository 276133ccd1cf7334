package recall

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"regexp"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"github.com/kljensen/snowball/russian"
	"golang.org/x/text/unicode/norm"
)

// term is the hash of a word. In a log with a million different words, the probability that any two have the same
// hash is less than one in ten million. Each process chooses random seeds, so an attacker cannot cause collisions
// with chosen input.
type term uint64

// Seeds of terms. Each kind of term has a different seed.
var (
	seedWord       = maphash.MakeSeed() // a word in lower case
	seedStem       = maphash.MakeSeed() // an English, German or Russian word without its ending
	seedIdentifier = maphash.MakeSeed() // an id, path or address, unchanged
	seedPrivate    = maphash.MakeSeed() // any term in text that no model sees
	seedForm       = maphash.MakeSeed() // a word, or a word without one of its characters
	seedAuthor     = maphash.MakeSeed()
	seedTool       = maphash.MakeSeed()
)

// maxWordBytes is the maximum number of bytes of a word that are indexed.
const maxWordBytes = 64

// splitter splits texts into words. It is not safe for concurrent use.
type splitter struct {
	whole, part []byte
}

// words calls f with each word of a text, in order, in lower case and without accents. The arguments start and end of f
// are the word's byte offsets in the text. f must not retain the word.
//
// Words consist of letters and digits. A camel-case name is a word, and so is each of its parts. In Hangul and in
// scripts without spaces between words, each pair of adjacent characters is a word. Each Chinese character is also a
// word.
func (s *splitter) words(text string, f func(word []byte, start, end int)) {
	s.whole, s.part = s.whole[:0], s.part[:0]
	start, partStart, parts := 0, 0, 0
	lower := false // whether the last character is a lower-case letter
	begin := func(at int) bool {
		if len(s.whole) == 0 {
			start = at
		}
		if len(s.part) == 0 {
			partStart = at
		}
		return len(s.whole) < maxWordBytes
	}
	endPart := func(at int) {
		if len(s.part) > 0 { // false if the word is longer than maxWordBytes
			f(s.part, partStart, at)
			s.part = s.part[:0]
			parts++
		}
	}
	end := func(at int) {
		if parts > 0 {
			endPart(at)
		}
		if len(s.whole) > 0 {
			f(s.whole, start, at)
		}
		s.whole, s.part, parts, lower = s.whole[:0], s.part[:0], 0, false
	}
	for i := 0; i < len(text); {
		at := i
		if class := classOf[text[i]]; class != classNone {
			if lower && class == classUpper {
				endPart(at)
			}
			lower = class == classLower
			if begin(at) {
				c := text[i]
				if class == classUpper {
					c |= 0x20
				}
				s.whole, s.part = append(s.whole, c), append(s.part, c)
			}
			i++
			continue
		}
		r, size := nextRune(text[i:])
		i += size
		switch {
		case isUnspaced(r):
			end(at)
			i = splitPairs(text, at, f)
		case unicode.IsLetter(r), unicode.IsNumber(r):
			if lower && unicode.IsUpper(r) {
				endPart(at)
			}
			lower = unicode.IsLower(r)
			if begin(at) {
				n := len(s.whole)
				s.whole = appendPlain(s.whole, r)
				s.part = append(s.part, s.whole[n:]...)
			}
		case unicode.Is(unicode.Mn, r): // a combining accent of the letter before it
		default:
			if (r == '\'' || r == '’') && s.isPossessive(text, i) {
				i++
			}
			end(at)
		}
	}
	end(len(text))
}

// isPossessive reports whether the letter at i is an s that follows the current word and an apostrophe, as in "Ann's".
func (s *splitter) isPossessive(text string, i int) bool {
	return len(s.whole) > 0 && i < len(text) && text[i]|0x20 == 's' && (i+1 == len(text) || classOf[text[i+1]] == classNone && text[i+1] < utf8.RuneSelf)
}

// nextRune returns the first character of a text and its length in bytes. A letter and its accents count as one
// character if Unicode has a composed form. The same holds for the parts of a Hangul syllable.
func nextRune(text string) (r rune, size int) {
	if r, size = utf8.DecodeRuneInString(text); r < utf8.RuneSelf {
		return r, size
	}
	if n := norm.NFC.NextBoundaryInString(text, true); n > size {
		whole := norm.NFC.String(text[:n])
		if composed, length := utf8.DecodeRuneInString(whole); length == len(whole) {
			return composed, n
		}
	}
	return r, size
}

// splitPairs calls f with the words of an unspaced script, starting at i. It returns the offset where the text in that
// script ends.
func splitPairs(text string, i int, f func(word []byte, start, end int)) int {
	var pair []byte // the character before the current one, and the current one
	for start, last := i, -1; i < len(text); {
		r, size := nextRune(text[i:])
		if !isUnspaced(r) {
			break
		}
		before := len(pair)
		pair = utf8.AppendRune(pair, r)
		if last >= 0 {
			f(pair, last, i+size)
		}
		if unicode.Is(unicode.Han, r) || i == start && !beginsUnspaced(text[i+size:]) {
			f(pair[before:], i, i+size)
		}
		pair = append(pair[:0], pair[before:]...)
		last = i
		i += size
	}
	return i
}

// beginsUnspaced reports whether the first character of a text belongs to a script without spaces.
func beginsUnspaced(text string) bool {
	r, _ := nextRune(text)
	return isUnspaced(r)
}

// unstemmedTerm returns the term of a word without removing its ending.
func unstemmedTerm(word []byte) term { return term(maphash.Bytes(seedWord, word)) }

// stemmedTerm returns the term of a word after removing its ending.
func stemmedTerm(word []byte) term {
	switch {
	case !isInflected(word):
		return unstemmedTerm(word)
	case word[0] >= utf8.RuneSelf:
		return hashTerm(seedStem, russian.Stem(string(word), true))
	}
	stem := string(word)
	if base, ok := irregular[stem]; ok {
		stem = base
	}
	return hashTerm(seedStem, germanEndings.ReplaceAllString(english.Stem(stem, true), "$1"))
}

// germanEndings matches a word that has a German ending after at least four letters. If only these endings are
// removed, few different English words become equal.
var germanEndings = regexp.MustCompile(`^(.{4,}?)(?:er?|n|s)+$`)

// isInflected reports whether a word consists only of English or only of Cyrillic letters.
func isInflected(word []byte) bool {
	cyrillic := word[0] >= utf8.RuneSelf
	return !bytes.ContainsFunc(word, func(r rune) bool {
		return cyrillic && !unicode.Is(unicode.Cyrillic, r) || !cyrillic && (r < 'a' || r > 'z')
	})
}

// Words that are shorter or longer have no forms. Too many words are similar to a short word.
const (
	minFormRunes = 4
	maxFormRunes = 24
)

// forms returns the term of a word and, for each of its characters, the term of the word without that character. Words
// with other characters than letters have no forms. Two words share a form if they differ by one character that is
// omitted, added, replaced, or swapped with the next. Some pairs of words that differ by one omitted and one added
// character also share a form.
func forms(word []byte) []term {
	n := utf8.RuneCount(word)
	if n < minFormRunes || n > maxFormRunes || bytes.ContainsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) {
		return nil
	}
	all := append(make([]term, 0, n+1), formTerm(word))
	var before rune
	var buffer [maxWordBytes + 64]byte
	for i := 0; i < len(word); {
		r, size := utf8.DecodeRune(word[i:])
		if r != before { // without this condition, the form would be the same as the one before
			without := append(append(buffer[:0], word[:i]...), word[i+size:]...)
			all = append(all, formTerm(without))
		}
		before = r
		i += size
	}
	return all
}

// minPartBytes is the minimum length of a part of a compound word in bytes.
const minPartBytes = 5

// compoundParts returns the terms of the words that a compound word may begin or end with.
func compoundParts(word []byte) (all []term) {
	for i := minPartBytes; i+minPartBytes <= len(word); i++ {
		all = append(all, formTerm(word[:i]), formTerm(word[i:]))
	}
	return all
}

func formTerm(word []byte) term { return term(maphash.Bytes(seedForm, word)) }

func hashTerm(seed maphash.Seed, text string) term { return term(maphash.String(seed, text)) }

// identifierTerm returns the term of an identifier. Composed and decomposed accents give the same term.
func identifierTerm(id string) term { return hashTerm(seedIdentifier, norm.NFC.String(id)) }

// private returns the term of the same word in text that no model sees.
func (t term) private() term {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(t))
	return term(maphash.Bytes(seedPrivate, b[:]))
}

// appendPlain appends a letter in lower case without accents. й is a letter of its own and is not changed.
func appendPlain(dst []byte, r rune) []byte {
	if r = unicode.ToLower(r); r == 'й' || isUnspaced(r) {
		return utf8.AppendRune(dst, r)
	}
	var letter [utf8.UTFMax]byte
	var letters [8 * utf8.UTFMax]byte
	for _, r := range string(norm.NFKD.Append(letters[:0], utf8.AppendRune(letter[:0], r)...)) {
		if !unicode.Is(unicode.Mn, r) {
			dst = utf8.AppendRune(dst, unicode.ToLower(r))
		}
	}
	return dst
}

// isUnspaced reports whether text in the rune's script is searched by pairs of characters. Such a script has no spaces
// between words. Hangul is included, because its words end in particles.
func isUnspaced(r rune) bool {
	return r >= 0x0e00 && (r == 'ー' || unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

// Classes of ASCII characters.
const (
	classNone = iota
	classDigit
	classLower
	classUpper
)

var classOf = func() (t [256]uint8) {
	for c := range t {
		switch {
		case c-'0' < 10 && c >= '0':
			t[c] = classDigit
		case c >= 'a' && c <= 'z':
			t[c] = classLower
		case c >= 'A' && c <= 'Z':
			t[c] = classUpper
		}
	}
	return t
}()
