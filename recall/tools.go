package recall

import (
	"github.com/patchlog-dev/patchlog/internal/traces"
	"github.com/patchlog-dev/patchlog/patch"
)

// The names of the tools by which an agent searches and reads its session's log. Their calls and results are
// not searched, since they repeat logged events.
const (
	SearchTool = traces.SearchTool
	ReadTool   = traces.ReadTool
)

func isRecall(tool string) bool { return traces.IsRecall(tool) }

// The default limits of a call of [SearchTool]: estimated tokens, and events.
const (
	DefaultCallTokens = 2_000
	DefaultResults    = 8
)

const (
	AroundTokens = 40 // estimated tokens around the text of each event of a result, and around the whole result
	LeastPiece   = 60 // the least tokens of an event's text; if a result has less room, it has fewer events
)

// PieceRunes is the number of characters of each event's text in a result of the given tokens and events.
func PieceRunes(tokens, events int) int {
	return max(LeastPiece, (tokens-AroundTokens)/events-AroundTokens) * patch.RunesPerToken
}
