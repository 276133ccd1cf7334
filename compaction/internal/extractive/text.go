package extractive

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/internal/words"
)

// Of a long text, only the beginning and the end are read. The middle is usually pasted data.
const (
	maxEndBytes  = 1 << 16 // bytes of each end
	maxUnitBytes = 300     // a longer sentence is divided, after punctuation or between words
)

// splitUnits divides a text into lines and sentences. If code is set, it omits blocks of code, which are common in
// agents' messages.
func splitUnits(text string, code bool) (all []*unit) {
	if len(text) > 2*maxEndBytes {
		all = splitUnits(text[:wordEnd(text, maxEndBytes)], code)
		text = text[len(text)-maxEndBytes:]
		text = text[len(text)-len(strings.TrimLeftFunc(text, isWordRune)):]
	}
	lines := strings.Split(text, "\n")
	blockEnd := 0 // index of the line that closes the block of code
	heading := -1 // index of the newest heading among the units
	for i, line := range lines {
		if code && i > blockEnd && isFence(line) {
			for n, other := range lines[i+1:] {
				if isFence(other) {
					blockEnd = i + 1 + n
					if heading >= 0 && heading == len(all)-1 { // the heading had only this block below it
						all = all[:heading]
					}
					break
				}
			}
		}
		if blockEnd > 0 && i <= blockEnd {
			continue
		}
		first := true
		if code && isHeading(line) {
			if len(all) == 0 {
				continue
			}
			heading = len(all)
		}
		for line = oneLine(line); line != ""; {
			n := sentenceEnd(line)
			for _, piece := range splitLong(strings.TrimSpace(line[:n])) {
				if piece = trimMarkdown(piece, first); hasWord(piece) {
					all = append(all, &unit{text: piece, startsLine: first})
					first = false
				}
			}
			line = strings.TrimSpace(line[n:])
		}
	}
	return all
}

// isFence reports whether a line begins or ends a block of code in Markdown.
func isFence(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "```") && !strings.Contains(line[3:], "```")
}

// isHeading reports whether a line is a heading in an agent's message.
func isHeading(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "#") || strings.HasPrefix(line, "**") && strings.HasSuffix(strings.TrimSuffix(line, ":"), "**") && len(line) < 60
}

// trimMarkdown removes the Markdown of headings, lists and tables from both ends of a line.
func trimMarkdown(s string, startsLine bool) string {
	if startsLine {
		s = strings.TrimLeft(s, "#> ")
		for _, mark := range []string{"- ", "* ", "• ", "| "} {
			s = strings.TrimPrefix(s, mark)
		}
	}
	return strings.TrimSpace(strings.TrimSuffix(s, " |"))
}

func hasWord(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsSymbol(r) && r > 0x2000
	})
}

// splitLong divides a long sentence, preferably after punctuation, and otherwise between two words.
func splitLong(sentence string) (all []string) {
	for len(sentence) > maxUnitBytes {
		end := wordEnd(sentence, maxUnitBytes)
		for i, r := range sentence[:end] {
			next := i + utf8.RuneLen(r)
			if i > maxUnitBytes/2 && unicode.Is(unicode.Terminal_Punctuation, r) && next < len(sentence) && (r >= utf8.RuneSelf || sentence[next] == ' ') {
				end = next
			}
		}
		if end == 0 { // the sentence begins with one long word
			if end = strings.IndexByte(sentence, ' '); end < 0 {
				break
			}
		}
		all = append(all, strings.TrimSpace(sentence[:end]))
		sentence = strings.TrimSpace(sentence[end:])
	}
	return append(all, sentence)
}

// sentenceEnd returns the end of the first sentence of a line. The sentence ends after a Unicode sentence terminal and
// the closing quotes and brackets that follow. An ASCII terminal ends a sentence only before a space that no lower-case
// letter follows. A period after a single letter, or after a number at the start of the line, does not end a sentence.
func sentenceEnd(text string) int {
	word, first := 0, true // number of letters since the last space, and whether no space came yet
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

// oneLine replaces white space, control characters and bidirectional controls with single spaces. [summaries.Clean]
// would remove control characters without leaving a space.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r >= 0x2028 && r <= 0x202E || r >= 0x2066 && r <= 0x2069
	}), " ")
}

// truncate cuts a text to at most the given size. A text that is cut ends with a whole word and an ellipsis. If too
// little would remain, it returns "".
func truncate(text string, maxSize tokens.Size) string {
	if tokens.Of(text) <= maxSize {
		return text
	}
	end := wordEnd(text, tokens.Prefix(text, max(maxSize-tokens.Of(" …"), 0)))
	if end = len(strings.TrimRight(text[:end], " ,;:")); end == 0 || maxSize < minCutSize {
		return ""
	}
	return text[:end] + " …"
}

const minCutSize = 3 * tokens.Token // below this size, a shortened text is useless

// wordEnd returns the end of the last whole word within the first n bytes, or 0 if there is none. Words end at a space.
// In a script without spaces, a word may end anywhere.
func wordEnd(text string, n int) int {
	n = min(max(n, 0), len(text))
	for n > 0 && n < len(text) {
		before, size := utf8.DecodeLastRuneInString(text[:n])
		after, _ := utf8.DecodeRuneInString(text[n:])
		if after == ' ' || before == ' ' || utf8.RuneStart(text[n]) && (words.IsUnspaced(before) || words.IsUnspaced(after)) {
			break
		}
		n -= size
	}
	return n
}

func isWordRune(r rune) bool { return r != ' ' && r != '\n' && !words.IsUnspaced(r) }
