// Package words finds the words of texts in any script.
package words

import (
	_ "embed"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsUnspaced reports whether the rune belongs to a script without spaces between words. The punctuation of such scripts
// is included.
func IsUnspaced(r rune) bool {
	return r >= 0x0e00 && (r >= 0x3000 && r <= 0x303f || r >= 0xff00 && r <= 0xff0f || r >= 0xff1a && r <= 0xff20 ||
		unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

// In returns the distinct words of a text in lower case. Words are runs of letters and digits. In scripts without
// spaces, each pair of adjacent characters is a word.
func In(text string) (words []string) {
	seen := make(map[string]bool)
	add := func(w string) {
		if w = strings.ToLower(w); !seen[w] {
			seen[w] = true
			words = append(words, w)
		}
	}
	start, previous := -1, -1 // offsets of the current word, and of the previous character of an unspaced script
	for i, r := range text {
		inWord := unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
		unspaced := inWord && IsUnspaced(r)
		if start >= 0 && (!inWord || unspaced) {
			add(text[start:i])
			start = -1
		}
		switch {
		case unspaced:
			if previous >= 0 {
				add(text[previous : i+utf8.RuneLen(r)])
			}
			previous = i
			continue
		case inWord && start < 0:
			start = i
		}
		previous = -1
	}
	if start >= 0 {
		add(text[start:])
	}
	return words
}

// Set returns the set of the words in text, which are separated by spaces.
func Set(text string) map[string]bool {
	all := make(map[string]bool)
	for _, w := range strings.Fields(text) {
		all[w] = true
	}
	return all
}

//go:embed common.txt
var commonWords string

var common = Set(commonWords)

// IsCommon reports whether a lower-case word occurs in nearly every text of one of ten languages, such as an article, a
// pronoun, an auxiliary verb or a greeting.
func IsCommon(word string) bool { return common[word] }
