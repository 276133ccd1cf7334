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

// idHandle is the prefix of a handle that contains the id of an event.
const idHandle = "id="

// Handle identifies an event of a log, either by the seq of its record and its index among the events of that record,
// or by its id.
type Handle struct {
	Seq   uint64 // 0 if ID is set
	Index int
	ID    string
}

// parseHandles returns the events that the text of a handle may identify. A handle with an id and a slash may
// identify two events, because the text after the slash is either the number of a part or the end of the id.
func parseHandles(text string) (all []Handle) {
	event := text
	slash := strings.LastIndexByte(text, '/')
	if slash >= 0 {
		event = text[:slash]
	}
	if id, ok := strings.CutPrefix(text, idHandle); ok {
		all = append(all, Handle{ID: id})
		if slash > len(idHandle) {
			all = append(all, Handle{ID: event[len(idHandle):]})
		}
		return all
	}
	number, indexText, hasIndex := strings.Cut(event, ".")
	seq, err := strconv.ParseUint(number, 10, 64)
	index := 0
	if hasIndex && err == nil {
		index, err = strconv.Atoi(indexText)
	}
	if err != nil || seq == 0 {
		return nil
	}
	return []Handle{{Seq: seq, Index: index}}
}

// Traces finds the events that the results of [SearchTool] and [ReadTool] came from. The caller must pass the events
// of the log to Of in order. The zero value is ready for use. Traces is not safe for concurrent use.
type Traces struct {
	reads map[string][]Handle // key: id of the call of ReadTool
}

// Of returns the events that the tool results in e came from.
func (t *Traces) Of(e *patch.Event) (sources []Handle) {
	hasRecall := false
	for p := range e.FunctionParts() {
		hasRecall = hasRecall || IsRecall(p.Name)
	}
	if !hasRecall {
		return nil
	}
	for _, p := range e.Parts() {
		switch kind := p.Kind; {
		case kind == patch.PartCall && p.Name == ReadTool:
			var args struct{ Handle string }
			if p.Args.Decode(&args) == nil {
				if t.reads == nil {
					t.reads = map[string][]Handle{}
				}
				t.reads[p.ID] = append(t.reads[p.ID], parseHandles(strings.TrimSpace(args.Handle))...)
			}
		case kind == patch.PartResponse && p.Name == ReadTool:
			sources = append(sources, t.reads[p.ID]...)
		case kind == patch.PartResponse && p.Name == SearchTool:
			var found struct{ Results []any }
			if p.Response.Decode(&found) != nil {
				continue
			}
			for _, r := range found.Results {
				if result, ok := r.(map[string]any); ok {
					if handle, ok := result["handle"].(string); ok {
						sources = append(sources, parseHandles(handle)...)
					}
				}
			}
		}
	}
	return sources
}
