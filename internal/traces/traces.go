// Package traces finds the events that the results of recall tools came from. It is separate from package recall, so
// that a program that only erases does not link recall's word forms.
package traces

import (
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Names of the tools with which an agent searches and reads its session's log.
const (
	SearchTool = "recall_search"
	ReadTool   = "recall_read"
)

// IsRecall reports whether a tool is one of the recall tools.
func IsRecall(tool string) bool { return tool == SearchTool || tool == ReadTool }

// idHandle is the prefix of a handle that contains an event's id.
const idHandle = "id="

// Handle identifies an event of a log by its record's seq and its index among the record's events, or by its id.
type Handle struct {
	Seq   uint64 // 0 if ID is set
	Index int
	ID    string
}

// handles returns the events that a tool's handle may identify. A handle with an id and a slash may identify two
// events: the text after the slash is either a part number or the end of the id.
func handles(text string) (all []Handle) {
	whole := text
	slash := strings.LastIndexByte(text, '/')
	if slash >= 0 {
		whole = text[:slash]
	}
	if id, ok := strings.CutPrefix(text, idHandle); ok {
		all = append(all, Handle{ID: id})
		if slash > len(idHandle) {
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

// Traces finds the events that the results of [SearchTool] and [ReadTool] came from. The caller must pass it the log's
// events in order. The zero value is ready for use. Traces is not safe for concurrent use.
type Traces struct {
	asked map[string][]Handle // by id of the call of ReadTool
}

// Of returns the events that the tool results in e came from.
func (t *Traces) Of(e *patch.Event) (brought []Handle) {
	recalls := false
	for p := range e.FunctionParts() {
		recalls = recalls || IsRecall(p.Name)
	}
	if !recalls {
		return nil
	}
	for _, p := range e.Parts() {
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
			var found struct{ Results []any }
			if p.Response.Decode(&found) != nil {
				continue
			}
			for _, r := range found.Results {
				if result, ok := r.(map[string]any); ok {
					if handle, ok := result["handle"].(string); ok {
						brought = append(brought, handles(handle)...)
					}
				}
			}
		}
	}
	return brought
}
