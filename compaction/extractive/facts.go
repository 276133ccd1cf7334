package extractive

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction/internal/oneline"
)

// passage is text on one line that can be cut short without losing what is worth most
// in it: after the cut come the facts that would be missing.
type passage struct {
	text  string
	runes int
	facts []fact // in order
}

// fact is a piece of a passage that is of use only word for word. None overlaps another.
type fact struct {
	start, end int // in bytes
	grade      factGrade
}

// factGrade says how much a fact is worth. Facts of greater grades are kept first.
type factGrade int

const (
	nameFact   factGrade = iota // what looks like a name, in any language
	numberFact                  // a number, a date, a time, an amount; a short code
	idFact                      // an id, a path, an address, a name as programs have them
)

// Widths in runes.
const (
	minCut       = 8   // below it a cut text says nothing
	minPassage   = 24  // below it one says little
	maxFactWidth = 120 // above it, it is data and not a fact
)

// newPassage puts the text on one line, with single spaces.
func newPassage(text string) *passage {
	text = oneline.Escape(strings.Join(strings.Fields(text), " "))
	return &passage{text: text, runes: utf8.RuneCountInString(text), facts: findFacts(text)}
}

// worth says how much would be lost with the passage.
func (p *passage) worth() int {
	var n [3]int
	for _, f := range p.facts {
		n[f.grade]++
	}
	return 3*min(n[idFact], 8) + 2*min(n[numberFact], 8) + min(n[nameFact], 4)
}

// width is how wide the whole passage is, in runes.
func (p *passage) width() int { return p.runes }

func (p *passage) least() int { return minPassage }

// cut returns the passage in at most width runes: whole, or its beginning up to the end
// of a word, an ellipsis, and of the facts behind it what there is room for. It is
// empty if that says nothing.
func (p *passage) cut(width int) string {
	if p.runes <= width {
		return p.text
	}
	if width < minCut {
		return ""
	}
	// Facts get up to half of the width at first; what they leave is the beginning's.
	_, used := p.factsFrom(p.headEnd(width/2), width/2)
	end := p.headEnd(width - used - 1)
	facts, _ := p.factsFrom(end, width-utf8.RuneCountInString(p.text[:end])-1)
	switch {
	case end == 0 && facts == "":
		return ""
	case facts == "":
		return p.text[:end] + "…"
	case end == 0:
		return "…" + facts
	}
	return p.text[:end] + "…" + facts
}

// headEnd is where a beginning of up to n runes ends: at the end of a word, and not
// within a fact of several words, which follows whole.
func (p *passage) headEnd(n int) int {
	end := wordEnd(p.text, n)
	for _, f := range p.facts {
		if f.start >= end {
			break
		}
		if f.end > end {
			return len(strings.TrimRight(p.text[:f.start], " "+cutMarks))
		}
	}
	return end
}

// factsFrom lists the facts that end behind an offset, as far as there is room, those of
// the greatest grade first, and how many runes that takes. Names get half of the room.
func (p *passage) factsFrom(offset, room int) (string, int) {
	told := make(map[string]bool) // before the offset
	var behind []fact
	for _, f := range p.facts {
		if f.end <= offset {
			told[p.text[f.start:f.end]] = true
			continue
		}
		behind = append(behind, f)
	}
	taken := make(map[int]bool)
	used := 0
	for grade := idFact; grade >= nameFact; grade-- {
		if grade == nameFact {
			room /= 2
		}
		for i, f := range behind {
			text := p.text[f.start:f.end]
			if f.grade != grade || told[text] {
				continue
			}
			n := utf8.RuneCountInString(text) + 1
			if used > 0 {
				n++
			}
			if used+n <= room {
				told[text], taken[i] = true, true
				used += n
			}
		}
	}
	var b strings.Builder
	for i, f := range behind {
		if !taken[i] {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteByte(' ')
		b.WriteString(p.text[f.start:f.end])
	}
	return b.String(), used
}

// cutQuestion takes the question that a text ends with from it, if it is not a long one.
func cutQuestion(text string) (rest, question string) {
	text = newPassage(text).text
	if !strings.HasSuffix(text, "?") && !strings.HasSuffix(text, "？") && !strings.HasSuffix(text, "؟") {
		return text, ""
	}
	start := 0
	_, last := utf8.DecodeLastRuneInString(text)
	for _, stop := range []string{". ", "! ", "? ", ": ", "。", "！", "？"} {
		if i := strings.LastIndex(text[:len(text)-last], stop); i >= 0 {
			start = max(start, i+len(stop))
		}
	}
	if utf8.RuneCountInString(text[start:]) > maxFactWidth {
		return text, ""
	}
	return strings.TrimSpace(text[:start]), text[start:]
}

// runeOffset is the offset in bytes of the n-th rune, or the text's length.
func runeOffset(text string, n int) int {
	end := 0
	for ; n > 0 && end < len(text); n-- {
		_, size := utf8.DecodeRuneInString(text[end:])
		end += size
	}
	return end
}

// wordEnd is where the last whole word ends within the first n runes, punctuation at its
// end left out.
func wordEnd(text string, n int) int {
	end := runeOffset(text, max(n, 0))
	before, _ := utf8.DecodeLastRuneInString(text[:end])
	after, _ := utf8.DecodeRuneInString(text[end:])
	if end < len(text) && after != ' ' && !unspaced(after) && !unspaced(before) {
		end = strings.LastIndexFunc(text[:end], func(r rune) bool { return r == ' ' || unspaced(r) })
		if end < 0 {
			return 0
		}
		if r, size := utf8.DecodeRuneInString(text[end:]); r != ' ' {
			end += size
		}
	}
	return len(strings.TrimRight(text[:end], " "+cutMarks))
}

// cutMarks are left out before an ellipsis.
const cutMarks = ",;:.…，、；："

// unspaced reports whether words of the rune's script stand without spaces, so that a
// text may be cut at any of its runes.
func unspaced(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// word is a stretch of a text between spaces, brackets, quotes and the like, without the
// punctuation at its ends.
type word struct {
	start, end int
	first      bool // of a sentence
	joined     bool // to the word before, by a space alone
}

// Punctuation at the ends of words.
const (
	leading  = "*:!?.,-–—•¿¡#"
	trailing = "*:!?.,-–—•。！？\\"
)

func words(text string) []word {
	var all []word
	first := true
	for start := 0; start < len(text); {
		n := strings.IndexFunc(text[start:], splitsWords)
		if n < 0 {
			n = len(text) - start
		}
		raw := text[start : start+n]
		if w := trimWord(raw); w != "" && !(raw[0] == '/' && start > 0 && text[start-1] == '<') { // no closing tag
			from := start + strings.Index(raw, w)
			joined := len(all) > 0 && text[all[len(all)-1].end:from] == " "
			all = append(all, word{from, from + len(w), first, joined})
			first = false
		}
		if last, _ := utf8.DecodeLastRuneInString(raw); strings.ContainsRune(".!?:。！？", last) && n > 0 {
			first = true
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
	return r == ' ' || strings.ContainsRune("()[]{}<>\"'`,;|→…×“”‘’«»„，、；：（）「」", r) || unspaced(r)
}

// findFacts finds the facts of a text in any language, by the looks of its words.
func findFacts(text string) []fact {
	var facts []fact
	all := words(text)
	for i := 0; i < len(all); i++ {
		w := all[i]
		s := text[w.start:w.end]
		if len(s) > 4*maxFactWidth || utf8.RuneCountInString(s) > maxFactWidth {
			continue
		}
		switch {
		case isReference(s):
			start, grade := w.start, idFact
			if isAmount(s) {
				grade = numberFact
			}
			// A number alone says little: the word before belongs to it.
			if i > 0 && w.joined && grade == numberFact && isPlain(text[all[i-1].start:all[i-1].end]) && (len(facts) == 0 || facts[len(facts)-1].end <= all[i-1].start) {
				start = all[i-1].start
			}
			facts = append(facts, fact{start, w.end, grade})
		case isCapital(s):
			// Names of several words are one fact. One word at the beginning of a
			// sentence need not be a name.
			end, n := w.end, 1
			for i+1 < len(all) && n < 5 && all[i+1].joined && !all[i+1].first && isCapital(text[all[i+1].start:all[i+1].end]) {
				i++
				n++
				end = all[i].end
			}
			if n > 1 || !w.first {
				facts = append(facts, fact{w.start, end, codeGrade(text[w.start:end])})
			}
		}
	}
	return facts
}

// isReference reports whether the word is an id, a number, a date, a path, an address,
// or a name as programs have them.
func isReference(s string) bool {
	if hasDigit(s) {
		return utf8.RuneCountInString(s) > 1
	}
	inner := s[1:]
	switch {
	case strings.Contains(inner, "@"), strings.Contains(inner, "_"), strings.Contains(s, "://"), strings.Contains(s, `\`):
		return true
	case strings.Contains(s, "/"):
		return strings.HasPrefix(s, "/") && len(s) > 1 || strings.HasPrefix(s, "~/") || strings.Count(s, "/") > 1 || strings.Contains(s, ".")
	}
	// A file or a host: letters, a point, letters.
	i := strings.LastIndexByte(s, '.')
	return i > 0 && i < len(s)-2 && len(s)-i <= 7 && isLetters(s[i+1:])
}

// isAmount reports whether the word is a number, a date or a time, perhaps with a sign
// before or a unit behind.
func isAmount(s string) bool {
	digit := strings.IndexFunc(s, unicode.IsDigit)
	if digit < 0 || strings.ContainsFunc(s[:digit], unicode.IsLetter) || strings.ContainsAny(s, "_/@") && !isDate(s) {
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

// isDate reports whether the word is digits and strokes alone.
func isDate(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsDigit(r) && r != '/' })
}

// isPlain reports whether the word is all letters.
func isPlain(s string) bool { return isLetters(s) && utf8.RuneCountInString(s) <= 24 }

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

// codeGrade is the grade of a word with capitals: all of them are, as in the codes of
// bookings and airports, and then its length decides, or it may be a name.
func codeGrade(s string) factGrade {
	n := 0
	for _, r := range s {
		if !unicode.IsUpper(r) {
			return nameFact
		}
		n++
	}
	switch {
	case n >= 5 && n <= 12:
		return idFact
	case n == 3 || n == 4:
		return numberFact
	}
	return nameFact
}

func hasDigit(s string) bool { return strings.ContainsFunc(s, unicode.IsDigit) }
