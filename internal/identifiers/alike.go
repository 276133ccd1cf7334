package identifiers

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// minHashDigits is the minimum number of hexadecimal digits of a shortened hash. maxHashDigits is the maximum number
// of digits of a full hash.
const minHashDigits, maxHashDigits = 7, 128

// spellings contains the words of a text in a normalised spelling, which is in lower case, without a leading v and
// without separators. A number and its unit are one word. A date is its month and day, whether it was written in
// digits or in words.
type spellings struct {
	words  map[string]bool
	hashes map[string]bool // prefixes of hashes, with at least minHashDigits digits
}

var (
	quantityPattern  = regexp.MustCompile(`[0-9][0-9.,]*[ \x{a0}]\pL{1,4}`)
	namedDatePattern = regexp.MustCompile(`(?i)(?:\b([0-9]{1,2})(?:st|nd|rd|th)?\.?,? (?:of )?)?\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?(?: ([0-9]{1,2}))?`)
	datePattern      = regexp.MustCompile(`^(?:[0-9]{4}[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})|([0-9]{1,2})[-/.]([0-9]{1,2})[-/.](?:[0-9]{2}){1,2})(?:t.*)?$`)
)

// hasSpelling reports whether the text contains the word in another spelling.
func (x *Index) hasSpelling(word string) bool {
	if x.spellings == nil {
		x.spellings = newSpellings(x.text)
	}
	form := normalise(word)
	if x.spellings.words[form] || x.spellings.hashes[form] {
		return true
	}
	for _, d := range datesOf(word) {
		if x.spellings.words[d] {
			return true
		}
	}
	for _, begins := range hashPrefixes(form) {
		if x.spellings.words[begins] {
			return true
		}
	}
	return false
}

func newSpellings(text string) *spellings {
	a := &spellings{map[string]bool{}, map[string]bool{}}
	for w := range scan(text, identifierTraits) {
		form := normalise(w.Text)
		a.words[form] = true
		for _, d := range datesOf(w.Text) {
			a.words[d] = true
		}
		for _, begins := range hashPrefixes(form) {
			a.hashes[begins] = true
		}
	}
	for _, m := range quantityPattern.FindAllString(text, -1) {
		a.words[normalise(m)] = true
	}
	for _, m := range namedDatePattern.FindAllStringSubmatch(text, -1) {
		month := strings.Index("janfebmaraprmayjunjulaugsepoctnovdec", strings.ToLower(m[2]))/3 + 1
		for _, day := range []string{m[1], m[3]} {
			if day != "" {
				a.words[dateKey(fmt.Sprint(month), day)] = true
			}
		}
	}
	return a
}

// normalise returns a word in the normalised spelling (see spellings).
func normalise(word string) string {
	s := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || strings.ContainsRune("-_./:,~", r) {
			return -1
		}
		return unicode.ToLower(r)
	}, word)
	if len(s) > 1 && s[0] == 'v' && s[1]-'0' <= 9 {
		return s[1:]
	}
	return s
}

// hashPrefixes returns the prefixes that a shortened form of the hash s can have. If s is not a hash, it returns
// none.
func hashPrefixes(s string) (all []string) {
	if len(s) > maxHashDigits || strings.Trim(s, "0123456789abcdef") != "" || !strings.ContainsAny(s, "abcdef") {
		return nil
	}
	for n := minHashDigits; n < len(s); n++ {
		all = append(all, s[:n])
	}
	return all
}

// datesOf returns the days that a date can mean. If the order of month and day is not clear, it returns both days.
func datesOf(word string) []string {
	m := datePattern.FindStringSubmatch(strings.ToLower(word))
	switch {
	case m == nil:
		return nil
	case m[1] != "":
		return []string{dateKey(m[1], m[2])}
	}
	return []string{dateKey(m[3], m[4]), dateKey(m[4], m[3])}
}

func dateKey(month, day string) string { return fmt.Sprintf("day %02s-%02s", month, day) }
