package patch

import (
	"encoding/json"
	"iter"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// Content is what an event says: a role, and parts such as texts, function calls and
// their responses. It is an immutable JSON value of the shape that Gemini's API and ADK
// give it, and may be shared between goroutines. The zero Content is none.
//
// It keeps what it was made from, as [Event] does: unknown fields and the literals of
// JSON text, the Go types of the values in maps. [Content.Parts] reads it; [Content.Decode]
// makes a Go value of it, such as a genai.Content.
type Content struct {
	value Value
	fault *FieldError // what it cannot be written for; its field is inside the content
}

// Text returns the content of one part, a text. A role is "user" or "model"; an empty one
// is left out. If the text or the role is not UTF-8, what writes the content, such as
// [NewEvent], refuses it and names the field.
func Text(role, text string) Content {
	b := make([]byte, 0, len(`{"parts":[{"text":""}],"role":""}`)+len(text)+len(role))
	b = append(b, `{"parts":[{"text":`...)
	b = append(jsontext.AppendQuote(b, text), `}]`...)
	if role != "" {
		b = jsontext.AppendQuote(append(b, `,"role":`...), role)
	}
	c := Content{value: Value{text: append(b, '}')}}
	switch {
	case !utf8.ValidString(text):
		c.fault = notUTF8("parts/0/text", text)
	case !utf8.ValidString(role):
		c.fault = notUTF8("role", role)
	}
	return c
}

// NewContent returns the content that a Go value says: a Content, a map with these fields, whose
// values come back as [NewValue] says, a json.RawMessage, or anything else by what encoding/json
// writes of it. Whatever writes null is none. It keeps no reference to v. Refused, with a
// *[FieldError] that names the field inside the content, are fields of another type than ADK's
// and what [NewEvent] refuses.
func NewContent(v any) (Content, error) {
	var w goWriter
	if err := w.field(v); err != nil {
		return Content{}, err
	}
	return newContent(w.buf, notes{types: w.types})
}

func newContent(text []byte, types notes) (Content, error) {
	if jsontext.KindOf(text) == jsontext.Null {
		return Content{}, nil
	}
	if err := contentShape.check(text); err != nil {
		return Content{}, err
	}
	return Content{value: Value{text, types}}, nil
}

// IsZero reports whether the content is none.
func (c Content) IsZero() bool { return c.value.text == nil }

// Role returns who speaks, "user" or "model", or "" if the content does not say.
func (c Content) Role() string { return stringMember(c.value.text, "role") }

// Parts yields the content's parts in their order, each with its index. A part that says
// several things, such as a text beside a function call, is yielded once for each of them,
// in the order in which they stand in it, under the same index; see [Part].
func (c Content) Parts() iter.Seq2[int, Part] {
	return partsIn(jsontext.Member(c.value.text, "parts"))
}

// Decode stores the content in the value that into points to, such as a genai.Content, as
// [Event.Decode] does. No content leaves the value alone. The error matches [ErrInvalid].
func (c Content) Decode(into any) error {
	if c.IsZero() {
		return nil
	}
	if c.fault != nil {
		return c.fault
	}
	return decodeTyped("", c.value.text, c.value.types, into)
}

// MarshalJSON returns the content's JSON text, numbers as they were written, or null if
// the content is none.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.fault != nil {
		return nil, c.fault
	}
	return c.value.MarshalJSON()
}

// UnmarshalJSON sets the content to what JSON text says. It keeps no reference to text.
// It refuses what [ParseEvent] refuses in an event's content, and leaves the content alone
// if the text is null. The error is a *[FieldError].
func (c *Content) UnmarshalJSON(text []byte) error {
	v, err := ParseValue(text)
	if err != nil {
		return err
	}
	parsed, err := newContent(v.text, notes{})
	if err != nil || parsed.IsZero() {
		return err
	}
	*c = parsed
	return nil
}

// String returns the content's JSON text.
func (c Content) String() string { return c.value.String() }

// contentAt is the content that is noted text of an event, or none.
func contentAt(text []byte, types notes) Content {
	if jsontext.KindOf(text) == jsontext.Null {
		return Content{}
	}
	return Content{value: Value{text, types.detached()}}
}

var (
	_ json.Marshaler   = Content{}
	_ json.Unmarshaler = (*Content)(nil)
)
