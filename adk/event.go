package adk

import (
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/patch"
)

// NewEvent converts an ADK event to an event of the log. The result is a copy: later changes of e do not affect it.
// [SessionEvent] returns every field equal, except for the values named below; times become UTC, and a zero timestamp
// stays zero. A missing id is set when the event is logged.
//
// Inside an `any` (state, arguments, responses, metadata, output) booleans, numbers, strings, []byte, times,
// json.Number, slices, and maps with string keys keep their Go types. A value of another type becomes what its JSON
// decodes to, with integers as int64; an error becomes its text. A RequestedInput's schema loses what its JSON lacks,
// such as PropertyOrder. In strings, U+FFFD replaces each byte that is not UTF-8. If JSON cannot encode a value, the
// error matches [patch.ErrInvalid] and names the field.
func NewEvent(e *session.Event) (*patch.Event, error) {
	p, _, err := convert.Event(e)
	return p, err
}

// SessionEvent converts an event of the log to an ADK event, a copy that the caller may change. Fields that ADK does
// not have are left out.
//
// In an event that was imported as JSON, a field may have a value that ADK's type cannot hold. Then the error matches
// [patch.ErrInvalid] and names these fields, and the returned event has the other fields.
func SessionEvent(p *patch.Event) (*session.Event, error) { return convert.SessionEvent(p) }
