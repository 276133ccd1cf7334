package recall

import (
	"github.com/patchlog-dev/patchlog/internal/traces"
	"github.com/patchlog-dev/patchlog/patch"
)

// Names of the tools with which an agent searches and reads its session's log. Their calls and results are not
// searched, because they repeat logged events.
const (
	SearchTool = traces.SearchTool
	ReadTool   = traces.ReadTool
)

func isRecallTool(tool string) bool { return traces.IsRecall(tool) }

// Default limits of a call of [SearchTool].
const (
	DefaultCallTokens = 2_000
	DefaultResults    = 8
)

const (
	AroundTokens = 40 // estimated tokens of overhead for each event in a result, and for the whole result
	LeastPiece   = 60 // minimum tokens of an event's text; if there is less room, a result has fewer events
)

// PieceRunes returns the number of characters of each event's text that fit into a result with the given numbers of
// tokens and events.
func PieceRunes(tokens, events int) int {
	return max(LeastPiece, (tokens-AroundTokens)/events-AroundTokens) * patch.RunesPerToken
}
