package adk

import (
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/patch"
)

// NewEvent converts an ADK event to an event of the log. The result is a copy, so later changes of e do not affect it.
// If e has no id, the event is given an id when it is logged.
//
// [SessionEvent] converts the result back. Every field is then equal to the field of e, with these exceptions:
//
//   - Times are in UTC. A zero timestamp stays zero.
//   - Inside a field of type any (state, arguments, responses, metadata, output), only booleans, numbers, strings,
//     []byte, times, json.Number, slices, and maps with string keys keep their Go types. A value of another type becomes
//     the value that its JSON decodes to, with integers as int64. An error becomes its text.
//   - The schema of a RequestedInput loses what JSON does not encode, such as PropertyOrder.
//   - In strings, U+FFFD replaces each byte that is not valid UTF-8.
//
// If JSON cannot encode a value, the error matches [patch.ErrInvalid] and names the field.
func NewEvent(e *session.Event) (*patch.Event, error) {
	p, _, err := convert.Event(e)
	return p, err
}

// SessionEvent converts an event of the log to an ADK event. The result is a copy that the caller may change. It
// lacks the fields that ADK's type does not have.
//
// An event that was imported as JSON may contain a value that ADK's type cannot hold. Then the error matches
// [patch.ErrInvalid] and names each such field. The returned event contains the other fields.
func SessionEvent(p *patch.Event) (*session.Event, error) { return convert.SessionEvent(p) }
