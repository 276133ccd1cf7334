package adk

import (
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/patch"
)

// NewEvent makes an event of the log from one of ADK. It copies: changing e afterwards
// changes nothing in the event. Every field comes back equal from [SessionEvent]; times
// come back in UTC, and a zero timestamp stays zero. A missing id is given when the event
// is logged.
//
// Inside an `any` (state, arguments, responses, metadata, output) booleans, numbers,
// strings, []byte, times, json.Number, slices, and maps with string keys come back with their Go
// types. A value of another type comes back as what its JSON says, an integer as an int64;
// an error comes back as its text. So it is with a RequestedInput's schema: what JSON does
// not say of it, such as PropertyOrder, is lost. U+FFFD takes the place of each byte of a text that
// is not UTF-8. What JSON cannot carry is refused: the error matches [patch.ErrInvalid] and names the
// field.
func NewEvent(e *session.Event) (*patch.Event, error) {
	p, _, err := convert.Event(e)
	return p, err
}

// SessionEvent gives an event of the log as ADK knows it. It is the caller's own. Fields
// that ADK does not know stay in the log.
//
// Of an event that was imported as JSON, a field may have a shape that ADK does not know.
// Then the error matches [patch.ErrInvalid] and names the fields, and the event that is
// returned has the others.
func SessionEvent(p *patch.Event) (*session.Event, error) { return convert.SessionEvent(p) }
