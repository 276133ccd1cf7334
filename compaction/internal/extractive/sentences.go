package extractive

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// Sizes of what is kept or left out as a whole.
const (
	longSentence = 40 * tokens.Token // above it, clauses are units of their own
	shortClause  = 6 * tokens.Token  // below it, a clause goes with the next
	leastClause  = 24                // bytes that the last clause has at least
	shortLines   = 24 * tokens.Token // below it, lines without a period go together
	longUnit     = 96 * tokens.Token // above it, a unit is cut between two words
)

// Of one text only the first and the last maxSentences are used: the others are pasted data.
const (
	maxSentences = 64
	maxLine      = 1 << 14 // bytes of a line
)

// sentences splits a text at the ends of its lines and sentences, and long sentences into clauses.
// The pieces have single spaces. Blocks of code between fences are left out.
func sentences(text string) (all []string) {
	fenced, open := false, false // open: the line before ended without a period
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "")
		}
		for line != "" {
			n := sentenceEnd(line)
			if s := unlisted(oneLine(line[:n])); s != "" && s != "-" {
				if open && len(all) > 0 && tokens.Of(all[len(all)-1]+s) < shortLines {
					all[len(all)-1] += "; " + s
				} else {
					all = append(all, clauses(s)...)
				}
			}
			line = line[n:]
		}
		open = len(all) > 0 && !endsSentence(all[len(all)-1])
	}
	if len(all) > 2*maxSentences {
		all = append(all[:maxSentences:maxSentences], all[len(all)-maxSentences:]...)
	}
	return all
}

// sentenceEnd is where the first sentence of a text ends: behind what Unicode calls a sentence
// terminal, with the quotes and brackets that close behind it. A terminal of ASCII ends one only
// before a blank that no small letter follows, and a period not behind a single letter, or a number at the start.
func sentenceEnd(text string) int {
	word, first := 0, true // letters since the last blank; no blank behind a word yet
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		switch {
		case unicode.IsSpace(r):
			first = false
			word = 0
			continue
		case !unicode.Is(unicode.STerm, r) && r != '…':
			if unicode.IsLetter(r) {
				word++
			}
			continue
		}
		rest := strings.TrimLeftFunc(text[i:], func(r rune) bool {
			return unicode.In(r, unicode.STerm, unicode.Pe, unicode.Pf) || r == '"' || r == '\''
		})
		i = len(text) - len(rest)
		blank, _ := utf8.DecodeRuneInString(rest)
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(rest, " "))
		switch {
		case rest == "", r >= utf8.RuneSelf && r != '…':
			return i
		case !unicode.IsSpace(blank), unicode.IsLower(next), r == '.' && (word == 1 || word == 0 && first):
			continue
		}
		return i
	}
	return len(text)
}

// clauses returns a sentence, or the pieces of a long one: they end behind commas, colons and the
// like, or where they are too long.
func clauses(sentence string) (all []string) {
	if tokens.Of(sentence) <= longSentence {
		return []string{sentence}
	}
	start := 0
	for i, r := range sentence {
		end := i + utf8.RuneLen(r)
		if r == utf8.RuneError || end <= start {
			continue
		}
		comma := unicode.Is(unicode.Terminal_Punctuation, r) && (r >= utf8.RuneSelf || strings.HasPrefix(sentence[end:], " ")) ||
			unicode.Is(unicode.Pd, r) && strings.HasPrefix(sentence[end:], " ")
		if comma && tokens.Of(sentence[start:end]) >= shortClause && len(sentence)-end > leastClause {
			all = append(all, strings.TrimSpace(sentence[start:end]))
			start = end
		}
	}
	for rest := strings.TrimSpace(sentence[start:]); rest != ""; {
		n := tokens.Prefix(rest, longUnit)
		if n < len(rest) {
			n = max(wordEnd(rest, n), tokens.Prefix(rest, 2*tokens.Token), 1)
		}
		all = append(all, strings.TrimSpace(rest[:n]))
		rest = strings.TrimSpace(rest[n:])
	}
	return all
}

// isQuestion reports whether a sentence ends in a question mark of any script.
func isQuestion(sentence string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(sentence, func(r rune) bool { return unicode.In(r, unicode.Pe, unicode.Pf) || r == '"' }))
	return strings.ContainsRune("?？؟⁇︖", r)
}

// oneLine returns a text with single spaces in place of white space and control characters.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	}), " ")
}

// cut returns a text in at most a size: whole, or its beginning up to the end of a word, and an
// ellipsis. It is empty if that says nothing.
func cut(text string, most tokens.Size) string {
	if tokens.Of(text) <= most {
		return text
	}
	end := wordEnd(text, tokens.Prefix(text, most-tokens.Of("…")))
	if end == 0 || most < leastCut {
		return ""
	}
	return text[:end] + "…"
}

const leastCut = 3 * tokens.Token // below it a cut text says nothing

// wordEnd is where the last whole word ends within the first n bytes, punctuation at its
// end left out.
func wordEnd(text string, n int) int {
	end := min(max(n, 0), len(text))
	before, _ := utf8.DecodeLastRuneInString(text[:end])
	after, _ := utf8.DecodeRuneInString(text[end:])
	if end < len(text) && after != ' ' && !identifiers.IsUnspaced(after) && !identifiers.IsUnspaced(before) {
		end = strings.LastIndexFunc(text[:end], func(r rune) bool { return r == ' ' || identifiers.IsUnspaced(r) })
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
