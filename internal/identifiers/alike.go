package identifiers

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// leastHash is the minimum number of hexadecimal digits of a shortened hash. mostHash is the maximum number of digits
// of a whole hash.
const leastHash, mostHash = 7, 128

// alike contains the words of a text in a normalised spelling: in lower case, without a leading v and without
// separators. A number and its unit are one word. A date is its month and day, whether written in digits or words.
type alike struct {
	words  map[string]bool
	hashes map[string]bool // prefixes of hashes with at least leastHash digits
}

var (
	measured = regexp.MustCompile(`[0-9][0-9.,]*[ \x{a0}]\pL{1,4}`)
	named    = regexp.MustCompile(`(?i)(?:\b([0-9]{1,2})(?:st|nd|rd|th)?\.?,? (?:of )?)?\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?(?: ([0-9]{1,2}))?`)
	dated    = regexp.MustCompile(`^(?:[0-9]{4}[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})|([0-9]{1,2})[-/.]([0-9]{1,2})[-/.](?:[0-9]{2}){1,2})(?:t.*)?$`)
)

// isAlike reports whether the text contains the word in another spelling.
func (x *Index) isAlike(word string) bool {
	if x.alike == nil {
		x.alike = newAlike(x.text)
	}
	form := spelled(word)
	if x.alike.words[form] || x.alike.hashes[form] {
		return true
	}
	for _, d := range daysOf(word) {
		if x.alike.words[d] {
			return true
		}
	}
	for _, begins := range beginnings(form) {
		if x.alike.words[begins] {
			return true
		}
	}
	return false
}

func newAlike(text string) *alike {
	a := &alike{map[string]bool{}, map[string]bool{}}
	for w := range scan(text, telling) {
		form := spelled(w.Text)
		a.words[form] = true
		for _, d := range daysOf(w.Text) {
			a.words[d] = true
		}
		for _, begins := range beginnings(form) {
			a.hashes[begins] = true
		}
	}
	for _, m := range measured.FindAllString(text, -1) {
		a.words[spelled(m)] = true
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		month := strings.Index("janfebmaraprmayjunjulaugsepoctnovdec", strings.ToLower(m[2]))/3 + 1
		for _, day := range []string{m[1], m[3]} {
			if day != "" {
				a.words[dayOf(fmt.Sprint(month), day)] = true
			}
		}
	}
	return a
}

// spelled returns a word in alike's spelling.
func spelled(word string) string {
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

// beginnings returns the prefixes that may stand for a hash.
func beginnings(s string) (all []string) {
	if len(s) > mostHash || strings.Trim(s, "0123456789abcdef") != "" || !strings.ContainsAny(s, "abcdef") {
		return nil
	}
	for n := leastHash; n < len(s); n++ {
		all = append(all, s[:n])
	}
	return all
}

// daysOf returns the days that a date can mean. If the order of month and day is unknown, it returns both.
func daysOf(word string) []string {
	m := dated.FindStringSubmatch(strings.ToLower(word))
	switch {
	case m == nil:
		return nil
	case m[1] != "":
		return []string{dayOf(m[1], m[2])}
	}
	return []string{dayOf(m[3], m[4]), dayOf(m[4], m[3])}
}

func dayOf(month, day string) string { return fmt.Sprintf("day %02s-%02s", month, day) }
