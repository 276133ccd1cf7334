package extractive

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// passage is text on one line that can be cut short.
type passage struct {
	text  string
	runes int
}

// Widths in runes.
const (
	minCut     = 8  // below it a cut text says nothing
	minPassage = 24 // below it one says little
)

// newPassage puts the text on one line, with single spaces.
func newPassage(text string) *passage {
	text = oneLine(text)
	return &passage{text: text, runes: utf8.RuneCountInString(text)}
}

// oneLine is a text with single spaces in place of white space and of what steers a
// terminal.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	}), " ")
}

// width is how wide the whole passage is, in runes.
func (p *passage) width() int { return p.runes }

// cut returns the passage in at most width runes: whole, or its beginning up to the end
// of a word, and an ellipsis. It is empty if that says nothing.
func (p *passage) cut(width int) string {
	if p.runes <= width {
		return p.text
	}
	if width < minCut {
		return ""
	}
	end := wordEnd(p.text, width-1)
	if end == 0 {
		return ""
	}
	return p.text[:end] + "…"
}

// maxQuestion is how wide a question is at most that is told apart.
const maxQuestion = 160

// cutQuestion takes the question that a text ends with from it, if it is not a long one.
func cutQuestion(text string) (rest, question string) {
	text = oneLine(text)
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
	if utf8.RuneCountInString(text[start:]) > maxQuestion {
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
