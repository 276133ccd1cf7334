package recall

import "github.com/patchlog-dev/patchlog/patch"

// The names of the tools by which an agent looks into its session's log. What these were
// asked and returned is not found again: it is there already, where it was found.
const (
	SearchTool = "recall_search"
	ReadTool   = "recall_read"
)

func isRecall(tool string) bool { return tool == SearchTool || tool == ReadTool }

// What a call of [SearchTool] brings into a prompt unless it is said otherwise: so many tokens, as
// estimated, in so many events, at most.
const (
	DefaultCallTokens = 2_000
	DefaultResults    = 8
)

const (
	AroundTokens = 40 // about how many tokens stand around the text of each event that is brought, and around all
	LeastPiece   = 60 // tokens of an event's text; where there is little room, fewer events are brought
)

// PieceRunes is how many characters of each event's text a call brings that brings so many tokens
// in so many events.
func PieceRunes(tokens, events int) int {
	return max(LeastPiece, (tokens-AroundTokens)/events-AroundTokens) * patch.RunesPerToken
}
