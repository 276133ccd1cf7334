package recall

import (
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// internalCalls has the names of ADK's internal calls. No model sees an event with one of these calls or with its
// response, which may contain a secret.
var internalCalls = map[string]bool{records.RequestCredential: true, records.RequestConfirmation: true}

// Text returns the text of an event that models see and searches use. It has the texts, the names and arguments of
// calls, the results of tools, transcriptions and error messages, in lines. It omits thoughts, file contents, and calls
// and responses of [SearchTool] and [ReadTool]. It returns "" for ADK's requests for credentials and confirmations.
func Text(e *patch.Event) string {
	hasRecall := false
	for p := range e.FunctionParts() {
		if internalCalls[p.Name] {
			return ""
		}
		hasRecall = hasRecall || isRecallTool(p.Name)
	}
	if hasRecall {
		return textWithoutRecall(e)
	}
	return identifiers.Text(e)
}

// textWithoutRecall returns the text of an event without the calls and responses of the recall tools.
func textWithoutRecall(e *patch.Event) string {
	var said strings.Builder
	for _, p := range e.Parts() {
		switch k := p.Kind; {
		case p.Thought, k == patch.PartData, (k == patch.PartCall || k == patch.PartResponse) && isRecallTool(p.Name):
		case k == patch.PartText: // includes transcriptions, which are not parts of the content
			said.WriteString(p.Text + "\n")
		case k == patch.PartResponse: // does not include the data of images
			said.WriteString(p.Name + "\n" + identifiers.Values(records.JSON(p.Response)))
		default:
			said.WriteString(identifiers.Values(records.JSON(p.Value)))
		}
	}
	return said.String()
}

// privateText returns the searchable text of an event that no model sees: state changes and ADK's internal requests.
func privateText(e *patch.Event) string {
	var said strings.Builder
	for p := range e.FunctionParts() {
		if internalCalls[p.Name] {
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

// isCopy reports whether a patch inserted the event as a copy of another event. Copies have cleared or shortened
// results, or contain a restored call.
func isCopy(e *patch.Event) bool {
	if _, ok := e.Origin(); ok {
		return true
	}
	_, ok := records.Recalled(e)
	return ok
}
