package recall

import (
	"encoding/json"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// notShown are calls by which ADK asks its own side for something. No model is shown an event
// with one of them, or with what it returned, which may be a secret.
var notShown = map[string]bool{"adk_request_credential": true, "adk_request_confirmation": true}

// Text is what an event says to a model and can be found by, in lines: the texts of its content, the
// names and arguments of calls, the results of tools, transcriptions, and messages of errors. Thoughts
// are left out, and so are the bytes of files, the calls and responses of [SearchTool] and
// [ReadTool], and events by which ADK asks for credentials and confirmations.
func Text(e *patch.Event) string {
	recalls := false
	for p := range e.FunctionParts() {
		if notShown[p.Name] {
			return ""
		}
		recalls = recalls || isRecall(p.Name)
	}
	if recalls {
		return beside(e)
	}
	said := identifiers.Text(e)
	for _, name := range []string{"inputTranscription", "outputTranscription"} {
		var transcription struct{ Text string }
		if text, ok := e.Field(name); ok && json.Unmarshal(text, &transcription) == nil && transcription.Text != "" {
			said += transcription.Text + "\n"
		}
	}
	return said
}

// beside is what an event says beside calls and responses of the tools that recall.
func beside(e *patch.Event) string {
	var said strings.Builder
	for _, p := range e.Content().Parts() {
		switch k := p.Kind; {
		case p.Thought, k == patch.PartData, (k == patch.PartCall || k == patch.PartResponse) && isRecall(p.Name):
		default:
			said.WriteString(identifiers.Values(records.JSON(p.Value)))
		}
	}
	return said.String()
}

// privateText is what an event says besides, which people can find it by: what it sets in the
// state, and what ADK asks for.
func privateText(e *patch.Event) string {
	var said strings.Builder
	for p := range e.FunctionParts() {
		if notShown[p.Name] {
			said.WriteString(identifiers.Text(e))
			break
		}
	}
	for c := range e.Changes() {
		value, _ := c.Value.MarshalJSON()
		said.WriteString(c.Key)
		said.WriteByte('\n')
		said.WriteString(identifiers.Values(value))
	}
	return said.String()
}

// isCopy reports whether an event that a patch put in says of itself that it is a copy of
// another one, with results cleared or shortened, or of a call that came back.
func isCopy(e *patch.Event) bool {
	if _, ok := e.Origin(); ok {
		return true
	}
	_, ok := records.Recalled(e)
	return ok
}
