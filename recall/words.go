package recall

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"
)

// term is a word by its hash, in the form in which it is looked for. That two of a log's
// words have the same one is not to be expected: with a million of them, once in ten million
// processes; and nobody can bring it about, since the seeds are drawn anew by each process.
type term uint64

// Kinds of terms have seeds of their own.
var (
	seedWord       = maphash.MakeSeed() // a word as it is written, in lower case
	seedStem       = maphash.MakeSeed() // what is left of an English word without its ending
	seedIdentifier = maphash.MakeSeed() // an id, a path, an address: as it is written
	seedPrivate    = maphash.MakeSeed() // any of these, in what no model is shown
	seedForm       = maphash.MakeSeed() // a word, or what is left of it without one character
	seedAuthor     = maphash.MakeSeed()
	seedTool       = maphash.MakeSeed()
)

// Longer words are searched by their first bytes.
const maxWordBytes = 64

// splitter finds the words of texts. It is for one goroutine.
type splitter struct {
	whole, part []byte
}

// words calls f with a text's words, in their order, in lower case and without accents, and
// says whether they then have English letters alone. The bytes are f's until it returns. Letters and
// digits make words. A name in camel case is a word, and so are its parts; where a script puts no
// spaces between words, and in Hangul, each two characters that follow each other are one.
func (s *splitter) words(text string, f func(word []byte, english bool)) {
	s.whole, s.part = s.whole[:0], s.part[:0]
	parts, lower, english := 0, false, true // lower: the last character is a small letter
	end := func() {
		if len(s.whole) == 0 {
			return
		}
		if parts > 0 && len(s.part) > 0 {
			f(s.part, english)
		}
		f(s.whole, english)
		s.whole, s.part, parts, lower, english = s.whole[:0], s.part[:0], 0, false, true
	}
	hump := func() {
		if len(s.part) > 0 { // else the word is too long to go on
			f(s.part, english)
			s.part = s.part[:0]
			parts++
		}
	}
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			i++
			switch class := classOf[c]; class {
			case none:
				if c == '\'' && s.contracts(text, i) {
					i++
				}
				end()
				continue
			case upper:
				c |= 0x20
				if lower {
					hump()
				}
				lower = false
			case small:
				lower = true
			case digit:
				lower, english = false, false
			}
			if len(s.whole) < maxWordBytes {
				s.whole, s.part = append(s.whole, c), append(s.part, c)
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case unspaced(r):
			end()
			i += pairs(text[i:], f)
			continue
		case unicode.IsLetter(r), unicode.IsNumber(r):
			if lower && unicode.IsUpper(r) {
				hump()
			}
			lower = unicode.IsLower(r)
			if n := len(s.whole); n < maxWordBytes {
				s.whole = appendPlain(s.whole, r)
				s.part = append(s.part, s.whole[n:]...)
				for _, c := range s.whole[n:] {
					english = english && classOf[c] == small
				}
			}
		case unicode.Is(unicode.Mn, r): // an accent by itself, on the letter before
		case r == '’' && s.contracts(text, i+size):
			i++
			end()
		default:
			end()
		}
		i += size
	}
	end()
}

// contracts reports whether an s behind an apostrophe says nothing, as in "Ann's". The splitter
// has the word so far.
func (s *splitter) contracts(text string, i int) bool {
	return len(s.whole) > 0 && i < len(text) && text[i]|0x20 == 's' && (i+1 == len(text) || classOf[text[i+1]] == none && text[i+1] < utf8.RuneSelf)
}

// pairs calls f with the pairs of characters at the beginning of a text that stand without
// spaces, or with the one if there is but one, and returns where they end.
func pairs(text string, f func(word []byte, english bool)) int {
	i, before, count := 0, 0, 0
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !unspaced(r) {
			break
		}
		if count > 0 {
			f([]byte(text[before:i+size]), false)
		}
		before = i
		i += size
		count++
	}
	if count == 1 {
		f([]byte(text[:i]), false)
	}
	return i
}

// written is the term of a word as it is.
func written(word []byte) term { return term(maphash.Bytes(seedWord, word)) }

// stemmed is the term of an English word without its ending.
func stemmed(word []byte) term { return termOf(seedStem, english.Stem(string(word), true)) }

// Words of fewer or more characters have no forms: too many others are similar to short ones.
const (
	minFormRunes = 4
	maxFormRunes = 24
)

// forms returns the terms of a word of letters and of the word without each of its characters. Two words
// have one in common if they differ by a character, left out, added, replaced or exchanged with the
// next one. Some words have one in common that differ by a character left out here and one added there.
func forms(word []byte) []term {
	n := utf8.RuneCount(word)
	if n < minFormRunes || n > maxFormRunes || bytes.ContainsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) {
		return nil
	}
	all := append(make([]term, 0, n+1), term(maphash.Bytes(seedForm, word)))
	var before rune
	var buffer [maxWordBytes + 64]byte
	for i := 0; i < len(word); {
		r, size := utf8.DecodeRune(word[i:])
		if r != before { // else it is the same as without the one before
			without := append(append(buffer[:0], word[:i]...), word[i+size:]...)
			all = append(all, term(maphash.Bytes(seedForm, without)))
		}
		before = r
		i += size
	}
	return all
}

func termOf(seed maphash.Seed, text string) term { return term(maphash.String(seed, text)) }

// private is the term of what a term says where no model is shown it.
func (t term) private() term {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(t))
	return term(maphash.Bytes(seedPrivate, b[:]))
}

// appendPlain appends a letter in lower case and without accents.
func appendPlain(dst []byte, r rune) []byte {
	var letter [utf8.UTFMax]byte
	var letters [8 * utf8.UTFMax]byte
	for _, r := range string(norm.NFKD.Append(letters[:0], utf8.AppendRune(letter[:0], r)...)) {
		if !unicode.Is(unicode.Mn, r) {
			dst = utf8.AppendRune(dst, unicode.ToLower(r))
		}
	}
	return dst
}

// unspaced reports whether the rune's script is searched by pairs of characters: words stand without
// spaces between them, or, in Hangul, with particles at their ends.
func unspaced(r rune) bool {
	return r >= 0x0e00 && (r == 'ー' || unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

// Classes of ASCII characters.
const (
	none = iota
	digit
	small
	upper
)

var classOf = func() (t [256]uint8) {
	for c := range t {
		switch {
		case c-'0' < 10 && c >= '0':
			t[c] = digit
		case c >= 'a' && c <= 'z':
			t[c] = small
		case c >= 'A' && c <= 'Z':
			t[c] = upper
		}
	}
	return t
}()
