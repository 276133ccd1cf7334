package recall

import (
	"bytes"
	"encoding/json"

	"github.com/patchlog-dev/patchlog/compaction/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
)

// The names of the tools by which an agent looks into its session's log. What these were
// asked and returned is not found again: it is there already, where it was found.
const (
	SearchTool = "recall_search"
	ReadTool   = "recall_read"
)

// say gives what an event says: its texts, and identifiers and ids word for word.
func say(e *patch.Event, text, identifier func(string)) {
	said := Text(e)
	if said == "" {
		return
	}
	text(said)
	for id := range identifiers.All(said) {
		identifier(id)
	}
	text(e.Author())
	for _, id := range []string{e.ID(), e.InvocationID()} {
		if id != "" {
			identifier(id)
		}
	}
	for p := range e.FunctionParts() {
		if p.ID != "" {
			identifier(p.ID)
		}
	}
}

// Text is what an event says and can be found by, in lines: the texts of its content, the names
// and arguments of calls, the results of tools, messages of errors, and what it sets in the state.
// Thoughts are left out, and so are the bytes of files, and the calls and responses of
// [SearchTool] and [ReadTool].
func Text(e *patch.Event) string {
	said := spoken(e)
	for c := range e.Changes() {
		value, _ := c.Value.MarshalJSON()
		said += c.Key + "\n" + identifiers.Values(value)
	}
	return said
}

// spoken is Text without what the event sets in the state.
func spoken(e *patch.Event) string {
	recalls := false
	for p := range e.FunctionParts() {
		recalls = recalls || isRecall(p.Name)
	}
	if !recalls {
		return identifiers.Text(e)
	}
	var said string
	for _, p := range e.Content().Parts() {
		switch k := p.Kind(); {
		case p.Thought(), k == patch.PartData, (k == patch.PartCall || k == patch.PartResponse) && isRecall(p.Name()):
		default:
			said += identifiers.Values(p.Value())
		}
	}
	return said
}

func isRecall(tool string) bool { return tool == SearchTool || tool == ReadTool }

// isCopy reports whether an event that a patch put in says of itself that it is a copy of
// another one, with results cleared or shortened, or of a call that came back.
func isCopy(e *patch.Event) bool {
	text, ok := e.Field("customMetadata")
	if !ok || !bytes.Contains(text, []byte(`"patchlog"`)) {
		return false
	}
	var metadata struct {
		Patchlog struct {
			Cleared  struct{ As string }
			Recalled string
		}
	}
	if json.Unmarshal(text, &metadata) != nil {
		return false
	}
	return metadata.Patchlog.Recalled != "" || metadata.Patchlog.Cleared.As != "" && metadata.Patchlog.Cleared.As == e.ID()
}
