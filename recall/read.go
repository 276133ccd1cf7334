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

// Reading returns an event as text. Each part of its content is a paragraph, and its error message is another. Calls
// are shown as JSON, and results in the form of [Original]. Data and files are described. Thoughts are omitted.
func Reading(e *patch.Event) string {
	var paragraphs []string
	add := func(format string, args ...any) { paragraphs = append(paragraphs, fmt.Sprintf(format, args...)) }
	for _, p := range e.Parts() {
		switch k := p.Kind; k {
		case patch.PartThought, patch.PartEmpty:
		case patch.PartText, patch.PartCode, patch.PartCodeResult:
			add("%s", p.Text)
		case patch.PartCall:
			add("call of %s: %s", p.Name, records.JSON(p.Args))
		case patch.PartResponse:
			add("result of %s: %s", p.Name, Original(p))
		case patch.PartData:
			add("[%s of %d bytes]", p.MIMEType, p.DataLen)
		case patch.PartFile:
			add("[%s at %s]", p.MIMEType, p.URI)
		default:
			add("%s: %s", p.Name, records.JSON(p.Value))
		}
	}
	if text, ok := e.Field("errorMessage"); ok {
		var message string
		if json.Unmarshal(text, &message) == nil && message != "" {
			add("error: %s", message)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// Page returns a page of text that begins at offset and has at most the given number of estimated tokens. A page has at
// least one character, even if that character takes two tokens. The result next is the offset of the next page, or -1
// if there is none. The pages together are equal to the text.
//
// Offsets are in bytes. If offset is inside a character, the page begins at that character. A negative offset counts as
// 0.
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
