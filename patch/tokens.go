package patch

import (
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// RunesPerToken is how many runes of text the estimate takes for a token. It is about
// right for English; text in other scripts and dense JSON take more tokens.
const RunesPerToken = 4

// DataTokens is what the estimate takes for a part that holds data or names a file: what
// Gemini takes for a small image.
const DataTokens = 258

// EstimatedTokens estimates how many tokens the event takes in a model's prompt: the
// runes of its texts, of the names and arguments of its function calls, of the names
// and results of its function responses, of executable code with its output, and of the
// JSON of parts of other kinds, over [RunesPerToken], rounded up; and [DataTokens] for each part with data or a file. It
// is 0 for an event without content. This is the one estimate of the whole module; it
// costs nothing, for it is made when the event is.
func (e *Event) EstimatedTokens() int { return e.tokens }

// EstimateTextTokens returns what [Event.EstimatedTokens] would be for an event with the
// given text alone.
func EstimateTextTokens(text string) int { return tokensOf(utf8.RuneCountInString(text)) }

func tokensOf(runes int) int { return (runes + RunesPerToken - 1) / RunesPerToken }

// promptSize is what an event's parts take in a prompt, so far.
type promptSize struct {
	runes int
	data  int // parts with data or a file
}

// add counts a part that is no call and no response.
func (s *promptSize) add(p part) {
	switch p.kind {
	case PartCode, PartCodeResult:
		for field, v := range jsontext.Members(p.value) {
			if field != "id" {
				s.runes += textRunes(v)
			}
		}
	case PartData, PartFile:
		s.data++
	default: // an empty part has no value
		s.runes += textRunes(p.value)
	}
}

func (s promptSize) tokens() int { return tokensOf(s.runes) + s.data*DataTokens }

// textRunes counts the runes of a text, or of the JSON of any other value.
func textRunes(v []byte) int {
	if jsontext.KindOf(v) == jsontext.String {
		return jsontext.RuneLen(v)
	}
	return utf8.RuneCount(v)
}
