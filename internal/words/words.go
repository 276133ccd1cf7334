// Package words finds the words of texts in any script.
package words

import (
	_ "embed"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsUnspaced reports whether the rune's script has no spaces between words. The punctuation of such a script counts
// too.
func IsUnspaced(r rune) bool {
	return r >= 0x0e00 && (r >= 0x3000 && r <= 0x303f || r >= 0xff00 && r <= 0xff0f || r >= 0xff1a && r <= 0xff20 ||
		unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

// In returns the words of a text in lower case, each once: stretches of letters and digits, or, of scripts
// without spaces between words, each two characters that stand together.
func In(text string) (words []string) {
	known := make(map[string]bool)
	add := func(w string) {
		if w = strings.ToLower(w); !known[w] {
			known[w] = true
			words = append(words, w)
		}
	}
	start, before := -1, -1 // of a word, of a character of an unspaced script
	for i, r := range text {
		inside := unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
		unspaced := inside && IsUnspaced(r)
		if start >= 0 && (!inside || unspaced) {
			add(text[start:i])
			start = -1
		}
		switch {
		case unspaced:
			if before >= 0 {
				add(text[before : i+utf8.RuneLen(r)])
			}
			before = i
			continue
		case inside && start < 0:
			start = i
		}
		before = -1
	}
	if start >= 0 {
		add(text[start:])
	}
	return words
}

// Set returns the words of a text between spaces.
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

// IsCommon reports whether a word, in lower case, stands in nearly every text of one of ten languages: an article, a
// pronoun, an auxiliary verb, a greeting. Of languages that are not listed it knows none.
func IsCommon(word string) bool { return common[word] }
