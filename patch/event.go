package patch

import (
	"bytes"
	"encoding/json"
	"iter"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
	"github.com/patchlog-dev/patchlog/internal/statekey"
)

// Prefixes of state keys, as ADK has them.
const (
	PrefixApp  = statekey.PrefixApp  // shared by all users and sessions of an app
	PrefixUser = statekey.PrefixUser // shared by all sessions of a user of an app
	PrefixTemp = statekey.PrefixTemp // for the current invocation; never logged
)

// Event is one regular event of a session: a user's message, a model's turn, a tool's call or result, or a change of
// state. It is immutable and may be shared between goroutines. The caller owns the results of its methods.
//
// [NewEvent] makes events from Go values, [ParseEvent] from JSON. A round trip loses nothing: values of state,
// arguments and metadata come back deep-equal, JSON with its unknown fields, empty lists and number literals.
type Event struct {
	Envelope

	// Derived from members when the event is made.
	delta       []Change // stateDelta's keys of the session itself, in key order
	shared      []Change // stateDelta's app: and user: keys, in key order
	parts       []FunctionPart
	longRunning []string
	role        string
	tokens      int // estimated, of the content
	partial     bool
	temp        bool // stateDelta has temp: keys
	content     bool // content with at least one part
	summary     bool // actions.compaction is there
}

// Envelope has the fields and methods that events and patches share.
type Envelope struct {
	identity
	members []member // the other top-level fields in their order; of a patch also its own malformed and null fields
	types   []goType
}

type identity struct {
	id           string
	invocationID string
	author       string
	branch       string
	scope        string
	time         time.Time // in UTC, without a monotonic reading
	timed        bool
}

// member is a field as checked, compact JSON text.
type member struct {
	name string
	text []byte
}

func findMember(members []member, name string) []byte {
	for _, m := range members {
		if m.name == name {
			return m.text
		}
	}
	return nil
}

// ID returns the event's id, or "" before an event without an id is logged.
func (e *Envelope) ID() string { return e.id }

// InvocationID returns the id of the invocation that the event belongs to.
func (e *Envelope) InvocationID() string { return e.invocationID }

// Author returns "user" or the name of an agent.
func (e *Envelope) Author() string { return e.author }

// Branch returns the path of agents that the event belongs to, such as agent_1.agent_2.
func (e *Envelope) Branch() string { return e.branch }

// IsolationScope returns the scope that restricts which agents see the event; "" is no restriction.
func (e *Envelope) IsolationScope() string { return e.scope }

// Timestamp returns the event's time in UTC, or the zero time before an event without a time is logged. Nothing is
// ordered by times.
func (e *Envelope) Timestamp() time.Time { return e.time }

// FunctionPart is a function call or a function response in an event's content.
type FunctionPart struct {
	Index    int // of the part in the content
	Response bool
	ID       string // the call id; may be empty
	Name     string // the function's name
}

// Partial reports whether the event is a piece of a stream. Stores accept such events and do not log them.
func (e *Event) Partial() bool { return e.partial }

// Role returns the content's role, or "".
func (e *Event) Role() string { return e.role }

// HasContent reports whether the event has content with at least one part.
func (e *Event) HasContent() bool { return e.content }

// IsSummary reports whether the event has actions.compaction.
func (e *Event) IsSummary() bool { return e.summary }

// FunctionParts yields the function calls and responses in the order of the
// content's parts.
func (e *Event) FunctionParts() iter.Seq[FunctionPart] {
	return slices.Values(e.parts)
}

// LongRunningToolIDs returns the ids of the event's long-running calls, whose final response comes later.
func (e *Event) LongRunningToolIDs() []string { return slices.Clone(e.longRunning) }

// Changes yields the changes of the event's state delta to the session's own state, in key order, without keys with
// one of the three prefixes.
func (e *Event) Changes() iter.Seq[Change] { return slices.Values(e.delta) }

// SharedChanges yields the changes of the event's state delta to shared scopes, in key order: the keys with prefix
// app: or user:.
func (e *Event) SharedChanges() iter.Seq[Change] { return slices.Values(e.shared) }

// StateDelta returns the event's state delta with all scopes, or nil if it has none. Values are as [Value.Any]
// returns them.
func (e *Event) StateDelta() map[string]any {
	text := jsontext.Member(findMember(e.members, "actions"), "stateDelta")
	return anyMap(text, notesAt(e.types, "actions", "stateDelta"))
}

// anyMap decodes an object. It returns nil for other values.
func anyMap(text []byte, types notes) map[string]any {
	if jsontext.KindOf(text) != jsontext.Object {
		return nil
	}
	out := map[string]any{}
	for k, v := range jsontext.Members(text) {
		out[k] = Value{v, types.take(k)}.Any()
	}
	return out
}

// Content returns the event's content, or null if it has none. [Value.Parts] reads it.
func (e *Event) Content() Value {
	return contentAt(findMember(e.members, "content"), notesAt(e.types, "content"))
}

// CustomMetadata returns the custom metadata, or nil if there is none.
func (e *Envelope) CustomMetadata() map[string]any {
	return anyMap(findMember(e.members, "customMetadata"), notesAt(e.types, "customMetadata"))
}

// Compaction returns the event's actions.compaction, or nil if it has none. The error matches [ErrInvalid] if the
// field has another shape.
func (e *Event) Compaction() (*EventCompaction, error) {
	if !e.summary {
		return nil, nil
	}
	text := jsontext.Member(findMember(e.members, "actions"), "compaction")
	c, err := parseCompaction(text)
	if err != nil {
		return nil, err
	}
	c.CompactedContent = contentAt(jsontext.Member(text, "compactedContent"), notesAt(e.types, "actions", "compaction", "compactedContent"))
	return c, nil
}

// FieldNames yields the names of the fields that Field returns, in their order.
func (e *Envelope) FieldNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, m := range e.members {
			if !yield(m.name) {
				return
			}
		}
	}
}

// Field returns the compact JSON text of a top-level field, such as "content" or "actions". It does not return fields
// with an accessor: those of the identity, and the well-formed fields of a patch. The caller owns the bytes.
func (e *Envelope) Field(name string) (json.RawMessage, bool) {
	text := findMember(e.members, name)
	return bytes.Clone(text), text != nil
}

// Decode stores a top-level field in the value that into points to, as encoding/json does, but if the value is zero, each
// `any` in it gets the Go types that the field was made from, and a number beyond float64 becomes a json.Number. An absent
// field leaves the value unchanged. The error matches [ErrInvalid].
func (e *Event) Decode(name string, into any) error {
	text := findMember(e.members, name)
	if text == nil {
		return nil
	}
	return decodeTyped(jsontext.EscapeStep(name), text, notesAt(e.types, name), into)
}

// decodeTyped decodes the text of a field into what into points to.
func decodeTyped(field string, text []byte, types notes, into any) (err error) {
	if p := reflect.ValueOf(into); p.Kind() == reflect.Pointer && !p.IsNil() && (p.Elem().IsZero() || p.Elem().Kind() == reflect.Interface) {
		p.Elem().SetZero()
		if decodeInto(jsontext.NewCursor(text), types, p.Elem()) {
			return nil
		}
		p.Elem().SetZero()
	}
	if err = json.Unmarshal(text, into); err != nil { // perhaps for a number beyond float64
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(into)
	}
	if err != nil {
		return fieldErr(field, "%s", clip(err.Error()))
	}
	return nil
}

// MarshalJSON returns the event in ADK's event JSON: the identity, then all other fields in their order. The time is
// RFC 3339 in UTC with nanoseconds.
func (e *Event) MarshalJSON() ([]byte, error) { return e.appendJSON(nil), nil }

func (e *Event) appendJSON(b []byte) []byte {
	b = e.identity.appendJSON(append(b, '{'))
	return append(appendMembers(b, e.members), '}')
}

// String returns the event's JSON.
func (e *Event) String() string { return string(e.appendJSON(nil)) }

// Footprint estimates the memory of the event in bytes. It is larger than [Record.Size], and faster.
func (e *Event) Footprint() int {
	n := int(unsafe.Sizeof(*e)) + len(e.id) + len(e.invocationID) + len(e.author) + len(e.branch) + len(e.scope)
	n += len(e.members)*int(unsafe.Sizeof(member{})) + len(e.parts)*int(unsafe.Sizeof(FunctionPart{}))
	for i := range e.members {
		n += len(e.members[i].name) + len(e.members[i].text)
	}
	for _, id := range e.longRunning {
		n += int(unsafe.Sizeof(id)) + len(id)
	}
	return n + changesFootprint(e.delta) + changesFootprint(e.shared)
}

// changesFootprint returns about how many bytes of memory changes take.
func changesFootprint(changes []Change) int {
	n := len(changes) * int(unsafe.Sizeof(Change{}))
	for i := range changes {
		n += len(changes[i].Key) + len(changes[i].Value.text)
	}
	return n
}

// texts returns the text fields of an identity in the order in which they are written.
func (e *identity) texts() [5]struct{ name, value string } {
	return [...]struct{ name, value string }{
		{"id", e.id}, {"invocationId", e.invocationID}, {"author", e.author},
		{"branch", e.branch}, {"isolationScope", e.scope},
	}
}

func (e *identity) appendJSON(b []byte) []byte {
	for _, f := range e.texts() {
		if f.value != "" {
			b = appendKey(b, f.name)
			b = jsontext.AppendQuote(b, f.value)
		}
	}
	if e.timed {
		b = appendKey(b, "timestamp")
		b = append(b, '"')
		b = e.time.AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	return b
}

func appendMembers(b []byte, members []member) []byte {
	for _, m := range members {
		b = appendKey(b, m.name)
		b = append(b, m.text...)
	}
	return b
}

// appendKey appends a key to an object that b ends in.
func appendKey(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = jsontext.AppendQuote(b, name)
	return append(b, ':')
}
