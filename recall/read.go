package recall

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/records"
	size "github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/patch"
)

// Reading is an event as a text to read page by page: a paragraph for each part of its content, and one for the
// message of an error. Calls are JSON, results as [Original] returns them, data and files are described,
// thoughts are left out.
func Reading(e *patch.Event) string {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for _, p := range e.Parts() {
		switch k := p.Kind; k {
		case patch.PartThought, patch.PartEmpty:
		case patch.PartText, patch.PartCode, patch.PartCodeResult:
			say("%s", p.Text)
		case patch.PartCall:
			say("call of %s: %s", p.Name, records.JSON(p.Args))
		case patch.PartResponse:
			say("result of %s: %s", p.Name, Original(p))
		case patch.PartData:
			say("[%s of %d bytes]", p.MIMEType, p.DataLen)
		case patch.PartFile:
			say("[%s at %s]", p.MIMEType, p.URI)
		default:
			say("%s: %s", p.Name, records.JSON(p.Value))
		}
	}
	if text, ok := e.Field("errorMessage"); ok {
		var message string
		if json.Unmarshal(text, &message) == nil && message != "" {
			say("error: %s", message)
		}
	}
	return strings.Join(said, "\n\n")
}

// Page returns the part of a text from an offset on of at most the given estimated tokens, but at least one character,
// of which some take two tokens, and the offset of the next page, or -1 if there is none. Offsets are in bytes; an offset inside a character is moved to the character's
// beginning, and a negative one to the beginning of the text. The pages in sequence are the text.
func Page(text string, offset, tokens int) (page string, next int) {
	offset = min(max(offset, 0), len(text))
	for offset > 0 && offset < len(text) && !utf8.RuneStart(text[offset]) {
		offset--
	}
	end := offset + max(size.Prefix(text[offset:], size.Size(max(tokens, 1))*size.Token), advance(text[offset:], 1))
	if end == len(text) {
		return text[offset:], -1
	}
	return text[offset:end], end
}
