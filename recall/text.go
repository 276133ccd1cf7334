package recall

import (
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// notShown has the calls that ADK makes to itself. No model is shown an event with such a call, or with its
// response, which may be a secret.
var notShown = map[string]bool{records.RequestCredential: true, records.RequestConfirmation: true}

// Text returns the text of an event that models see and searches look through, in lines: the texts of its content, the
// names and arguments of calls, the results of tools, transcriptions, and error messages. It leaves out thoughts, the
// bytes of files, calls and responses of [SearchTool] and [ReadTool], and events by which ADK asks for credentials and
// confirmations.
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
	return identifiers.Text(e)
}

// beside is the text of an event without calls and responses of the recall tools.
func beside(e *patch.Event) string {
	var said strings.Builder
	for _, p := range e.Parts() {
		switch k := p.Kind; {
		case p.Thought, k == patch.PartData, (k == patch.PartCall || k == patch.PartResponse) && isRecall(p.Name):
		case k == patch.PartText: // also spoken words, which have no part
			said.WriteString(p.Text + "\n")
		case k == patch.PartResponse: // without the data of images
			said.WriteString(p.Name + "\n" + identifiers.Values(records.JSON(p.Response)))
		default:
			said.WriteString(identifiers.Values(records.JSON(p.Value)))
		}
	}
	return said.String()
}

// privateText is the searched text of an event that no model is shown: state changes, and requests of ADK.
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

// isCopy reports whether an event that a patch inserted is marked as a copy of another event: with results
// cleared or shortened, or of a call that was restored.
func isCopy(e *patch.Event) bool {
	if _, ok := e.Origin(); ok {
		return true
	}
	_, ok := records.Recalled(e)
	return ok
}
