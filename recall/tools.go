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
	AroundTokens = 40 // estimated tokens of overhead, for each event of a result and for the whole result
	LeastPiece   = 60 // the minimum tokens of an event's text; a result without room for them has fewer events
)

// PieceRunes returns how many characters of text each event gets in a result of the given numbers of tokens and events.
func PieceRunes(tokens, events int) int {
	return max(LeastPiece, (tokens-AroundTokens)/events-AroundTokens) * patch.RunesPerToken
}
