package patch

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
	"github.com/patchlog-dev/patchlog/internal/statekey"
)

// ParseEvent makes an event from one object in ADK's event JSON. It keeps unknown fields at any depth, and no reference
// to text. It refuses repeated keys, text that is not Unicode, known fields of another type than ADK's, and patches,
// with a *[FieldError] that names the field.
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

// ParseRecord makes a record from one line of the text form:
// a patch if it has a string patchType, else an event. Seq is 0 if the line has none.
//
// A patch with malformed fields is still a record, since a log may hold one: see [PatchEvent.Validate]. Field names of
// other programs, such as patch_type, and rows of ADK for Python's tables are refused; importers read these. The error
// is a *[FieldError].
func ParseRecord(text []byte) (Record, error) {
	spaced, err := jsontext.CheckSpaced(text)
	if err != nil {
		return Record{}, textError(err)
	}
	if spaced {
		text = jsontext.Compact(text)
	} else {
		text = bytes.Clone(text)
	}
	rec, err := parseChecked(text)
	if err != nil {
		return Record{}, err
	}
	if rec.Event != nil && jsontext.Depth(text) > maxValueDepth+1 {
		return Record{}, fieldErr("", "nested deeper than %d", maxValueDepth+1)
	}
	return rec, nil
}

// textError makes a *[FieldError] of what is wrong with a text, if anything is.
func textError(err error) error {
	if at := (*jsontext.Error)(nil); errors.As(err, &at) {
		return fieldErr(strings.TrimPrefix(at.Pointer, "/"), "%s (byte %d)", at.Problem, at.Offset)
	}
	return nil
}

// parseChecked parses checked, compact text. It keeps no reference to it.
func parseChecked(text []byte) (Record, error) {
	if jsontext.KindOf(text) != jsontext.Object {
		return Record{}, fieldErr("", "a record is a JSON object, not %s", clip(text))
	}
	var rec Record
	var id identity
	var members []member
	var patchType []byte
	for name, v := range jsontext.Members(text) {
		switch name {
		case "seq":
			seq, err := strconv.ParseUint(string(v), 10, 64)
			if err != nil || seq == 0 {
				return Record{}, fieldErr("seq", "want a positive integer, not %s", clip(v))
			}
			rec.Seq = seq
		case "patchType":
			if jsontext.KindOf(v) != jsontext.String {
				return Record{}, fieldErr(name, "want a string, not %s", clip(v))
			}
			patchType = v
		default:
			taken, err := id.take(name, v)
			if err != nil {
				return Record{}, err
			}
			if !taken {
				if len(members) == MaxFields {
					return Record{}, tooMany("", "fields", MaxFields)
				}
				members = append(members, member{name, v})
			}
		}
	}
	for _, name := range foreignNames {
		if findMember(members, name) != nil {
			return Record{}, fieldErr(name, "another program's name; an import translates it")
		}
	}
	if patchType != nil {
		p, err := parsePatch(id, jsontext.Unquote(patchType), members)
		rec.Patch = p
		return rec, err
	}
	e := &Event{Envelope: Envelope{identity: id, members: members}}
	if err := e.derive(); err != nil {
		return Record{}, err
	}
	if err := e.checkContent(); err != nil {
		return Record{}, err
	}
	rec.Event = e
	return rec, nil
}

// take moves a field into the identity, if it is one of its fields and says
// something. An empty id or a null time is as good as none; other empty fields are
// kept as they came.
func (e *identity) take(name string, v []byte) (taken bool, err error) {
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
		if jsontext.KindOf(v) == jsontext.Null {
			return true, nil
		}
		e.time, err = parseTime(v)
		e.timed = err == nil
		return true, err
	default:
		return false, nil
	}
	switch jsontext.KindOf(v) {
	case jsontext.String:
		*field = jsontext.Unquote(v)
	case jsontext.Null:
	default:
		return false, fieldErr(name, "want a string, not %s", clip(v))
	}
	return *field != "" || name == "id", nil
}

// Times outside the years 1 to 9999 have no RFC 3339 form.
var (
	minTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
)

// parseTime reads RFC 3339 text.
func parseTime(v []byte) (time.Time, error) {
	var t time.Time
	switch jsontext.KindOf(v) {
	case jsontext.String:
		text := jsontext.Unquote(v)
		var err error
		if t, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return t, fieldErr("timestamp", "%s", clip(err.Error()))
		}
		const digits = "0123456789"
		if point := strings.IndexAny(text, ".,"); point >= 0 {
			zone := strings.TrimLeft(text[point+1:], digits)
			fraction := strings.TrimSuffix(text[point+1:], zone)
			if len(strings.TrimRight(fraction, "0")) > len("123456789") {
				return t, fieldErr("timestamp", "%s is more exact than nanoseconds", clip(v))
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

// Kinds of the known fields of an event.
var memberKinds = map[string]jsontext.Kind{
	"content": jsontext.Object, "actions": jsontext.Object, "partial": jsontext.Bool,
	"longRunningToolIds": jsontext.Array, "usageMetadata": jsontext.Object, "customMetadata": jsontext.Object,
}

// derive fills what an event derives from its members, and refuses known members of
// another type than ADK's.
func (e *Event) derive() error {
	if err := e.identity.check(); err != nil {
		return err
	}
	if len(e.members) > MaxFields {
		return tooMany("", "fields", MaxFields)
	}
	for _, m := range e.members {
		kind := jsontext.KindOf(m.text)
		if want, ok := memberKinds[m.name]; ok && kind != want && kind != jsontext.Null {
			return fieldErr(m.name, "a value of another type is wanted than %s", clip(m.text))
		}
		switch m.name {
		case "content":
			if err := e.deriveContent(m.text); err != nil {
				return err
			}
		case "actions":
			if err := e.deriveActions(m.text); err != nil {
				return err
			}
		case "partial":
			e.partial = string(m.text) == "true"
		case "longRunningToolIds":
			if kind == jsontext.Array {
				e.longRunning = []string{}
			}
			for _, id := range jsontext.Elements(m.text) {
				if jsontext.KindOf(id) != jsontext.String {
					return fieldErr("longRunningToolIds", "want strings, not %s", clip(id))
				}
				if len(e.longRunning) == MaxLongRunning {
					return tooMany("longRunningToolIds", "ids", MaxLongRunning)
				}
				e.longRunning = append(e.longRunning, jsontext.Unquote(id))
			}
		}
	}
	return nil
}

// Limits for small items of a record, each of which takes many times the memory of its text.
const (
	MaxReplacements  = 10_000 // events in the replacement of a patch
	MaxStateKeys     = 10_000 // keys in a state delta, or in an initial state
	MaxLongRunning   = 10_000 // long-running tool ids of an event
	MaxFunctionParts = 10_000 // function calls and responses in an event
	MaxFields        = 1_000  // top-level fields of an event or a patch, beside its identity
)

// tooMany says that a field has more of something than it may. The error matches [ErrTooLarge].
func tooMany(field, what string, most int) error {
	return fmt.Errorf("%w: field %q: more than %d %s", ErrTooLarge, field, most, what)
}

// MaxIDBytes is the maximum length of an id of an event or a patch.
const MaxIDBytes = 1024

func (e *identity) check() error {
	if len(e.id) > MaxIDBytes {
		return fieldErr("id", "%d bytes; an id has at most %d", len(e.id), MaxIDBytes)
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

// checkContent refuses a content with a known field of another type than ADK's. It is for
// events from outside; what a store gives back was checked before.
func (e *Event) checkContent() error {
	if err := contentShape.check(findMember(e.members, "content")); err != nil {
		return err.within("/content")
	}
	return nil
}

func (e *Event) deriveContent(content []byte) error {
	if jsontext.KindOf(content) != jsontext.Object {
		return nil
	}
	var size promptSize
	c := jsontext.NewCursor(content)
	for c.Enter(); c.More(); {
		switch string(c.KeyText()) {
		case "role":
			if role := c.Value(); jsontext.KindOf(role) == jsontext.String {
				e.role = jsontext.Unquote(role)
			}
		case "parts":
			for i, p := range partsAt(c) {
				e.content = true
				if p.kind != PartCall && p.kind != PartResponse {
					size.add(p)
					continue
				}
				if len(e.parts) == MaxFunctionParts {
					return tooMany("content/parts", "function calls and responses", MaxFunctionParts)
				}
				e.parts = append(e.parts, p.function(i, &size))
			}
		default:
			c.Value()
		}
	}
	e.tokens = size.tokens()
	return nil
}

// Kinds of the known fields of actions.
var actionKinds = map[string]jsontext.Kind{
	"stateDelta": jsontext.Object, "artifactDelta": jsontext.Object, "skipSummarization": jsontext.Bool,
	"transferToAgent": jsontext.String, "escalate": jsontext.Bool, "compaction": jsontext.Object,
}

func (e *Event) deriveActions(actions []byte) error {
	if jsontext.KindOf(actions) != jsontext.Object {
		return nil
	}
	c := jsontext.NewCursor(actions)
	for c.Enter(); c.More(); {
		name, kind := string(c.KeyText()), c.Kind()
		if want, ok := actionKinds[name]; ok && kind != want && kind != jsontext.Null {
			return fieldErr("actions/"+name, "a value of another type is wanted than %s", clip(c.Value()))
		}
		if name == "compaction" {
			e.summary = kind != jsontext.Null
		}
		if name != "stateDelta" || kind == jsontext.Null {
			c.Value()
			continue
		}
		types := notesAt(e.types, "actions", "stateDelta")
		for c.Enter(); c.More(); {
			if len(e.delta)+len(e.shared) == MaxStateKeys {
				return tooMany("actions/stateDelta", "keys", MaxStateKeys)
			}
			key := c.Key()
			change := Change{key, Value{c.Value(), types.take(key)}}
			switch statekey.ScopeOf(key) {
			case statekey.Temp:
				e.temp = true
			case statekey.App, statekey.User:
				e.shared = append(e.shared, change)
			default:
				e.delta = append(e.delta, change)
			}
		}
		byKey := func(a, b Change) int { return strings.Compare(a.Key, b.Key) }
		slices.SortFunc(e.delta, byKey)
		slices.SortFunc(e.shared, byKey)
	}
	return nil
}
