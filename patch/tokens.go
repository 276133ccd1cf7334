package patch

import (
	"github.com/patchlog-dev/patchlog/internal/jsontext"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// RunesPerToken is the number of English letters in an estimated token. Other text has fewer: see
// [Event.EstimatedTokens].
const RunesPerToken = 4

// DataTokens is the estimate for a part with data or a file: Gemini's count for a small image.
const DataTokens = 258

// EstimatedTokens estimates how many tokens the event takes in a model's prompt: its texts, the
// names and arguments of its function calls, the names and results of its function responses,
// executable code with its output, and the JSON of parts of other kinds, weighed by the kinds
// of their characters (an English letter a quarter, a Chinese character five sixths of a token);
// and [DataTokens] for each part with data or a file. Of prose, code and JSON it is within a
// quarter of what a tokenizer counts. It is 0 for an event without content. This is the one
// estimate of the whole module. It is computed once, when the event is made.
func (e *Event) EstimatedTokens() int { return e.tokens }

// EstimateTextTokens returns what [Event.EstimatedTokens] would be for an event with the
// given text alone.
func EstimateTextTokens(text string) int { return tokens.Of(text).Tokens() }

// promptSize is what an event's parts take in a prompt, so far.
type promptSize struct {
	text tokens.Size
	data int // parts with data or a file
}

// add counts a part that is no call and no response.
func (s *promptSize) add(p part) {
	switch p.kind {
	case PartCode, PartCodeResult:
		for field, v := range jsontext.Members(p.value) {
			if field != "id" {
				s.text += sizeOf(v)
			}
		}
	case PartData, PartFile:
		s.data++
	default: // an empty part has no value
		s.text += sizeOf(p.value)
	}
}

func (s promptSize) tokens() int { return s.text.Tokens() + s.data*DataTokens }

// sizeOf measures a text, or the JSON of any other value.
func sizeOf(v []byte) tokens.Size {
	if jsontext.KindOf(v) == jsontext.String {
		return tokens.OfQuoted(v)
	}
	return tokens.OfBytes(v)
}
