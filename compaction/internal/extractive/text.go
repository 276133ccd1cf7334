package extractive

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/internal/words"
)

// Of one text only the beginning and the end are read: what is between is pasted data.
const (
	maxText = 1 << 16 // bytes of each end
	maxUnit = 300     // bytes above which a sentence is divided, at a comma or between words
)

// unitsOf splits a text at the ends of its lines and sentences. Blocks of code that are closed are left out of what an
// agent says.
func unitsOf(text string, code bool) (all []*unit) {
	if len(text) > 2*maxText {
		all = unitsOf(text[:wordEnd(text, maxText)], code)
		text = text[len(text)-maxText:]
		text = text[len(text)-len(strings.TrimLeftFunc(text, partOfWord)):]
	}
	lines := strings.Split(text, "\n")
	fenced := 0   // the line that closes the block
	heading := -1 // the index of the unit that is a heading, if nothing stands under it yet
	for i, line := range lines {
		if code && i > fenced && isFence(line) {
			for n, other := range lines[i+1:] {
				if isFence(other) {
					fenced = i + 1 + n
					if heading >= 0 && heading == len(all)-1 { // of the block alone
						all = all[:heading]
					}
					break
				}
			}
		}
		if fenced > 0 && i <= fenced {
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
			for _, piece := range pieces(strings.TrimSpace(line[:n])) {
				if piece = trimMarks(piece, first); hasWord(piece) {
					all = append(all, &unit{text: piece, lined: first})
					first = false
				}
			}
			line = strings.TrimSpace(line[n:])
		}
	}
	return all
}

// isFence reports whether a line begins or ends a block of code.
func isFence(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "```") && !strings.Contains(line[3:], "```")
}

// isHeading reports whether a line is one, as agents write it.
func isHeading(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "#") || strings.HasPrefix(line, "**") && strings.HasSuffix(strings.TrimSuffix(line, ":"), "**") && len(line) < 60
}

// trimMarks removes the marks of headings, lists and tables around a line.
func trimMarks(s string, begins bool) string {
	if begins {
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

// pieces divides a sentence that is too long behind a comma or the like, or else between two words.
func pieces(sentence string) (all []string) {
	for len(sentence) > maxUnit {
		end := wordEnd(sentence, maxUnit)
		for i, r := range sentence[:end] {
			next := i + utf8.RuneLen(r)
			if i > maxUnit/2 && unicode.Is(unicode.Terminal_Punctuation, r) && next < len(sentence) && (r >= utf8.RuneSelf || sentence[next] == ' ') {
				end = next
			}
		}
		if end == 0 { // one word, which goes on
			if end = strings.IndexByte(sentence, ' '); end < 0 {
				break
			}
		}
		all = append(all, strings.TrimSpace(sentence[:end]))
		sentence = strings.TrimSpace(sentence[end:])
	}
	return append(all, sentence)
}

// sentenceEnd is where the first sentence of a line ends: behind what Unicode calls a sentence terminal, with the
// quotes and brackets that close behind it. A terminal of ASCII ends one only before a blank that no small letter
// follows, and a period not behind a single letter, or a number at the start.
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

// oneLine returns a text with single spaces in place of white space, control characters, and those that turn the
// direction of writing, which [summaries.Clean] would remove.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r >= 0x2028 && r <= 0x202E || r >= 0x2066 && r <= 0x2069
	}), " ")
}

// cut returns a text in at most a size: whole, or its beginning up to the end of a word, and an ellipsis. It is empty
// if that says nothing.
func cut(text string, most tokens.Size) string {
	if tokens.Of(text) <= most {
		return text
	}
	end := wordEnd(text, tokens.Prefix(text, max(most-tokens.Of(" …"), 0)))
	if end = len(strings.TrimRight(text[:end], " ,;:")); end == 0 || most < leastCut {
		return ""
	}
	return text[:end] + " …"
}

const leastCut = 3 * tokens.Token // below it a cut text says nothing

// wordEnd is where the last whole word ends within the first n bytes: at a blank, or in a script without blanks
// anywhere but in a word of another one. It is 0 if there is none.
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

func partOfWord(r rune) bool { return r != ' ' && r != '\n' && !words.IsUnspaced(r) }
