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

// Reading is what an event says, as a text to read page by page: one paragraph for each part
// of its content, and the message of an error. Of calls and results it has the JSON, of results
// as [Original] does; of data and files what they are; of thoughts nothing.
func Reading(e *patch.Event) string {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for _, p := range e.Content().Parts() {
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

// Page returns the part of a text from an offset on that takes at most the given tokens, as
// estimated, and the offset of the next page, or -1 if this is the last. Offsets are in bytes; one
// inside a character means its beginning, one below 0 the text's. The pages that follow each
// other are the text.
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
