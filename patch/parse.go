package patch

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// ParseEvent makes an event from one JSON object in the form of ADK's event JSON. It keeps unknown fields at
// any depth. It does not retain the argument. It refuses repeated keys, text that is not Unicode, known fields
// whose type differs from ADK's, and patches. The error is a *[FieldError] that names the field.
func ParseEvent(text []byte) (*Event, error) {
	rec, err := ParseRecord(text)
	if err != nil {
		return nil, err
	}
	if rec.Event == nil {
		return nil, fieldErr("patchType", "this is a patch, not an event")
	}
	if rec.Seq != 0 {
		return nil, fieldErr("seq", "only a record of a log has a seq")
	}
	return rec.Event, nil
}

// ParseRecord makes a record from one line of the text form. An object with a patchType is a patch, and any
// other object is an event. If the line has no seq, Seq is 0.
//
// A patch with malformed fields is accepted, because a log may contain one; [PatchEvent.Validate] detects it.
// ParseRecord refuses field names of other programs, such as patch_type. It also refuses rows of the database
// tables of ADK for Python. Importers convert both. The error is a *[FieldError].
func ParseRecord(text []byte) (Record, error) {
	text, err := jsonvalue.Parse(text)
	if err != nil {
		return Record{}, jsonError(err)
	}
	rec, err := parseChecked(text)
	if err == nil && rec.Event != nil && jsonvalue.Depth(text) > maxValueDepth+1 {
		err = fieldErr("", "nested deeper than %d", maxValueDepth+1)
	}
	if err != nil {
		return Record{}, err
	}
	return rec, nil
}

// parseChecked parses compact JSON that was already validated. It does not retain text.
func parseChecked(text []byte) (Record, error) {
	if jsonvalue.KindOf(text) != jsonvalue.Object {
		return Record{}, fieldErr("", "a record is a JSON object, not %s", clip(text))
	}
	var rec Record
	var id identity
	var patchType []byte
	others := make([]byte, 1, len(text))
	others[0] = '{'
	for name, v := range jsonvalue.Members(text) {
		switch {
		case name == "seq":
			seq, err := strconv.ParseUint(string(v), 10, 64)
			if err != nil || seq == 0 {
				return Record{}, fieldErr(name, "want a positive integer, not %s", clip(v))
			}
			rec.Seq = seq
		case name == "patchType":
			if jsonvalue.KindOf(v) != jsonvalue.String {
				return Record{}, fieldErr(name, "want a string, not %s", clip(v))
			}
			patchType = v
		case slices.Contains(foreignNames, name):
			return Record{}, fieldErr(name, "this is another program's field name; import the log with an importer for that program")
		default:
			taken, err := id.setField(name, v)
			if err != nil {
				return Record{}, err
			}
			if !taken {
				others = append(jsonvalue.AppendKey(others, name), v...)
			}
		}
	}
	others = nilIfEmpty(append(others, '}'))
	if patchType != nil {
		p, err := parsePatch(id, jsonvalue.Unquote(patchType), others)
		rec.Patch = p
		return rec, err
	}
	rec.Event = &Event{Envelope: Envelope{identity: id, json: others}}
	if err := rec.Event.buildIndex(); err != nil {
		return Record{}, err
	}
	return rec, rec.Event.checkContent()
}

// setField stores a field that belongs to the identity. If ok is false, the field must stay in the JSON. An
// empty id and a null time count as absent. Other empty fields stay in the JSON.
func (e *identity) setField(name string, v []byte) (ok bool, err error) {
	var field *string
	switch name {
	case "id":
		field = &e.id
	case "invocationId":
		field = &e.invocationID
	case "author":
		field = &e.author
	case "branch":
		field = &e.branch
	case "isolationScope":
		field = &e.scope
	case "timestamp":
		if jsonvalue.KindOf(v) == jsonvalue.Null {
			return true, nil
		}
		e.time, err = parseTime(v)
		e.timed = err == nil
		return true, err
	default:
		return false, nil
	}
	switch jsonvalue.KindOf(v) {
	case jsonvalue.String:
		*field = jsonvalue.Unquote(v)
	case jsonvalue.Null:
	default:
		return false, fieldErr(name, "want a string, not %s", clip(v))
	}
	return *field != "" || name == "id", nil
}

// RFC 3339 supports only the years 1 to 9999.
var (
	minTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
)

func parseTime(v []byte) (time.Time, error) {
	var t time.Time
	switch jsonvalue.KindOf(v) {
	case jsonvalue.String:
		text := jsonvalue.Unquote(v)
		var err error
		if t, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return t, fieldErr("timestamp", "%s", clip(err.Error()))
		}
		const digits = "0123456789"
		if point := strings.IndexAny(text, ".,"); point >= 0 {
			zone := strings.TrimLeft(text[point+1:], digits)
			fraction := strings.TrimSuffix(text[point+1:], zone)
			if len(strings.TrimRight(fraction, "0")) > len("123456789") {
				return t, fieldErr("timestamp", "%s has a finer resolution than nanoseconds", clip(v))
			}
		}
	default:
		return t, fieldErr("timestamp", "want RFC 3339 text, not %s", clip(v))
	}
	t = t.UTC()
	if t.Before(minTime) || t.After(maxTime) {
		return t, fieldErr("timestamp", "%s is outside the years 1 to 9999 in UTC", clip(v))
	}
	return t, nil
}

// buildIndex computes the event's index. It returns an error if the identity is invalid or the type of a known
// field differs from ADK's.
func (e *Event) buildIndex() error {
	if err := e.identity.check(); err != nil {
		return err
	}
	x, err := newIndex(e.json)
	e.index = x
	return err
}

// MaxIDBytes is the maximum length in bytes of the id of an event or a patch.
const MaxIDBytes = 1024

func (e *identity) check() *FieldError {
	if len(e.id) > MaxIDBytes {
		return fieldErr("id", "the id has %d bytes; the maximum is %d", len(e.id), MaxIDBytes)
	}
	for _, f := range e.texts() {
		if !utf8.ValidString(f.value) {
			return fieldErr(f.name, "the text %.40q is not valid UTF-8", f.value)
		}
	}
	if e.timed && (e.time.Before(minTime) || e.time.After(maxTime)) {
		return fieldErr("timestamp", "%v is outside the years 1 to 9999", e.time)
	}
	return nil
}

// checkContent returns an error if the type of a known field in the content differs from ADK's. It is called
// only for new events, because stored events were checked when they were made.
func (e *Event) checkContent() error {
	if err := contentShape.check(e.field("content")); err != nil {
		return err.within("/content")
	}
	return nil
}
