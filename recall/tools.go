package recall

import (
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

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

// idHandle begins a handle that names an event by its id.
const idHandle = "id="

// Handle names an event of a log, by its record's seq and the index among the events that the
// record brought, or by its id.
type Handle struct {
	Seq   uint64 // 0 if it is by the id
	Index int
	ID    string
}

// handles returns what a handle of the tools may name. An id may have in it what else begins the
// name of a part: then there are two.
func handles(text string) (all []Handle) {
	whole, _, part := cutLast(text, "/")
	if id, ok := strings.CutPrefix(text, idHandle); ok {
		all = append(all, Handle{ID: id})
		if part && len(whole) > len(idHandle) {
			all = append(all, Handle{ID: whole[len(idHandle):]})
		}
		return all
	}
	number, of, several := strings.Cut(whole, ".")
	seq, err := strconv.ParseUint(number, 10, 64)
	index := 0
	if several && err == nil {
		index, err = strconv.Atoi(of)
	}
	if err != nil || seq == 0 {
		return nil
	}
	return []Handle{{Seq: seq, Index: index}}
}

// cutLast is [strings.Cut] around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Traces finds out which events the results of [SearchTool] and [ReadTool] in a log tell of. It is
// given the log's events in their order. The zero value is ready for use, by one goroutine.
type Traces struct {
	asked map[string][]Handle // what calls of ReadTool asked for, by the calls' ids
}

// Of returns what the results in an event were brought from, as far as they or their calls say it.
func (t *Traces) Of(e *patch.Event) (brought []Handle) {
	recalls := false
	for p := range e.FunctionParts() {
		recalls = recalls || isRecall(p.Name)
	}
	if !recalls {
		return nil
	}
	for _, p := range e.Content().Parts() {
		switch kind := p.Kind; {
		case kind == patch.PartCall && p.Name == ReadTool:
			var asked struct{ Handle string }
			if p.Args.Decode(&asked) == nil {
				if t.asked == nil {
					t.asked = map[string][]Handle{}
				}
				t.asked[p.ID] = append(t.asked[p.ID], handles(strings.TrimSpace(asked.Handle))...)
			}
		case kind == patch.PartResponse && p.Name == ReadTool:
			brought = append(brought, t.asked[p.ID]...)
		case kind == patch.PartResponse && p.Name == SearchTool:
			var found struct{ Results []struct{ Handle string } }
			_ = p.Response.Decode(&found) // what can be read of it
			for _, r := range found.Results {
				brought = append(brought, handles(r.Handle)...)
			}
		}
	}
	return brought
}
