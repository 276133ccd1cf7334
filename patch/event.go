package patch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
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
	PrefixTemp = statekey.PrefixTemp // for the running invocation; never logged
)

// Event is one regular event of a session: a user's message, a model's turn, a
// tool's call or result, a change of state. It is immutable and may be shared
// between goroutines; what its methods return is the caller's own.
//
// Events are made from Go values by [NewEvent] and from JSON by [ParseEvent]. A round trip loses
// nothing either way: the values of state, arguments and metadata come back deep-equal, JSON with its
// unknown fields, empty lists and number literals.
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

// Envelope is what events and patches have in common.
type Envelope struct {
	identity
	members []member // the other top-level fields, in the order they came; of a patch also malformed and null ones of its own
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

// ID returns the event's id, or "" before the event has been logged without one.
func (e *Envelope) ID() string { return e.id }

// InvocationID names the run of the agent that the event belongs to.
func (e *Envelope) InvocationID() string { return e.invocationID }

// Author is "user" or the name of an agent.
func (e *Envelope) Author() string { return e.author }

// Branch is the path of agents, as agent_1.agent_2, that the event belongs to.
func (e *Envelope) Branch() string { return e.branch }

// Outline returns an event that sets in the session's own state what e does, and is empty else.
func (e *Event) Outline() *Event {
	if len(e.delta) == 0 {
		return emptyOutline
	}
	return &Event{delta: e.delta}
}

var emptyOutline = &Event{}

// IsolationScope restricts which agents see the event; "" is no restriction.
func (e *Envelope) IsolationScope() string { return e.scope }

// Timestamp is the event's time in UTC. Times are data: nothing is ordered by them.
// It is the zero time before an event without one has been logged.
func (e *Envelope) Timestamp() time.Time { return e.time }

// FunctionPart is a function call or a function response in an event's content.
type FunctionPart struct {
	Index    int // of the part in the content
	Response bool
	ID       string // the call id; may be empty
	Name     string // the function's name
}

// Partial reports whether the event is a piece of a stream. Such events are
// accepted and not logged.
func (e *Event) Partial() bool { return e.partial }

// Role returns the content's role, or "".
func (e *Event) Role() string { return e.role }

// HasContent reports whether the event has content with at least one part.
func (e *Event) HasContent() bool { return e.content }

// IsSummary reports whether actions.compaction is there.
func (e *Event) IsSummary() bool { return e.summary }

// FunctionParts yields the function calls and responses in the order of the
// content's parts.
func (e *Event) FunctionParts() iter.Seq[FunctionPart] {
	return slices.Values(e.parts)
}

// LongRunningToolIDs returns the ids of calls whose final response comes later.
func (e *Event) LongRunningToolIDs() []string { return slices.Clone(e.longRunning) }

// Changes yields what the event's state delta sets in the session's own state, in
// key order: keys with one of the three prefixes are left out.
func (e *Event) Changes() iter.Seq[Change] { return slices.Values(e.delta) }

// SharedChanges yields what the event's state delta sets in the scopes that
// sessions share, in key order: the keys with prefix app: or user:.
func (e *Event) SharedChanges() iter.Seq[Change] { return slices.Values(e.shared) }

// StateDelta returns the event's state delta, all scopes together, or nil if the
// event has none. Values are as [Value.Any] gives them.
func (e *Event) StateDelta() map[string]any {
	text := jsontext.Member(findMember(e.members, "actions"), "stateDelta")
	return anyMap(text, notesAt(e.types, "actions", "stateDelta"))
}

// anyMap decodes an object; of anything else it makes nil.
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

// Content returns the event's content, which [Value.Parts] reads, or null if there is none.
func (e *Event) Content() Value {
	return contentAt(findMember(e.members, "content"), notesAt(e.types, "content"))
}

// CustomMetadata returns the custom metadata, or nil if there is none.
func (e *Envelope) CustomMetadata() map[string]any {
	return anyMap(findMember(e.members, "customMetadata"), notesAt(e.types, "customMetadata"))
}

// Compaction returns what actions.compaction says, or nil if it is not there. The
// error matches [ErrInvalid] if it is there and has another shape.
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

// Field returns the JSON text of a top-level field, such as "content" or "actions", as it came but
// for white space: of an event none of its identity, of a patch one that has no meaning for it, or
// is malformed, and patchId. The bytes are the caller's own.
func (e *Envelope) Field(name string) (json.RawMessage, bool) {
	text := findMember(e.members, name)
	return bytes.Clone(text), text != nil
}

// Decode stores the field of that name in the value that into points to: in an `any` with the Go
// types that it was made from, elsewhere as encoding/json does, but with each number in an `any`
// as a json.Number if one of them is beyond float64. An absent field leaves the value alone. The
// error matches [ErrInvalid].
func (e *Event) Decode(name string, into any) error {
	text := findMember(e.members, name)
	if text == nil {
		return nil
	}
	return decodeTyped(jsontext.EscapeStep(name), text, notesAt(e.types, name), into)
}

// decodeTyped decodes the text of a field into what into points to.
func decodeTyped(field string, text []byte, types notes, into any) (err error) {
	if p, ok := into.(*any); ok && p != nil {
		*p, err = decodeAny(jsontext.NewCursor(text), types, numberAsFloat)
	} else if err = json.Unmarshal(text, into); err != nil { // perhaps for a number beyond float64
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(into)
	}
	if err != nil {
		return fieldErr(field, "%s", clip(err.Error()))
	}
	return nil
}

// MarshalJSON returns the event in ADK's event JSON: its identity first, then every
// other field as it came. The time is RFC 3339 in UTC with its nanoseconds.
func (e *Event) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	b = e.identity.appendJSON(b)
	b = appendMembers(b, e.members)
	return append(b, '}'), nil
}

// String returns the event's JSON.
func (e *Event) String() string {
	text, _ := e.MarshalJSON()
	return string(text)
}

// Footprint returns about how many bytes of memory the event takes. It takes less time
// than [Record.Size], and is larger.
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

func (e *Event) size() int { return objectSize(e.identity.size() + membersSize(e.members)) }

// objectSize is the size of an object whose members, with a comma each, take n bytes.
func objectSize(n int) int { return len("{}") + max(n-len(","), 0) }

func membersSize(members []member) int {
	n := 0
	for _, m := range members {
		n += jsontext.QuotedLen(m.name) + len(":") + len(m.text) + len(",")
	}
	return n
}

// texts are the fields of an identity that are texts, in the order they are written.
func (e *identity) texts() [5]struct{ name, value string } {
	return [...]struct{ name, value string }{
		{"id", e.id}, {"invocationId", e.invocationID}, {"author", e.author},
		{"branch", e.branch}, {"isolationScope", e.scope},
	}
}

// size is how many bytes the identity's members take, with a comma each.
func (e *identity) size() int {
	n := 0
	for _, f := range e.texts() {
		if f.value != "" {
			n += len(f.name) + len(`"":,`) + jsontext.QuotedLen(f.value)
		}
	}
	if e.timed {
		var text [len(time.RFC3339Nano)]byte
		n += len(`"timestamp":"",`) + len(e.time.AppendFormat(text[:0], time.RFC3339Nano))
	}
	return n
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

var _ fmt.Stringer = (*Event)(nil)
