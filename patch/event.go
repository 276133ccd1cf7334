package patch

import (
	"bytes"
	stdjson "encoding/json"
	"iter"
	"slices"
	"time"
	"unsafe"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/statekey"
)

// Prefixes of state keys in ADK.
const (
	PrefixApp  = statekey.PrefixApp  // shared by all users and sessions of an app
	PrefixUser = statekey.PrefixUser // shared by all of a user's sessions in an app
	PrefixTemp = statekey.PrefixTemp // valid only in the current invocation; never logged
)

// Event is one event of a session: a user's message, a model's response, a function call, a function response,
// or a change of state. It is immutable, and goroutines may share it. The caller owns the results of its
// methods.
//
// [NewEvent] makes an event from Go values, and [ParseEvent] makes one from JSON. Writing and reading an event
// loses nothing. Go values in the state, in arguments and in metadata come back deep-equal. JSON comes back
// with its unknown fields, empty lists and number literals.
type Event struct {
	Envelope
	index index
}

// Envelope has the fields and methods that events and patches share.
type Envelope struct {
	identity
	json  []byte // the other top-level fields as a compact object, or nil; in a patch also its malformed fields
	types goTypes
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

// field returns the JSON of a top-level field outside the identity, or of a value nested in that field. It
// returns nil if there is no such value.
func (e *Envelope) field(names ...string) []byte { return jsonvalue.Member(e.json, names...) }

func (e *Envelope) value(names ...string) Value {
	text := e.field(names...)
	if len(e.types) == 0 || text == nil {
		return Value{text: text}
	}
	return Value{text: text, types: e.types.within(pointerTo(names...))}
}

func pointerTo(names ...string) (pointer string) {
	for _, name := range names {
		pointer += "/" + jsonvalue.Step(name)
	}
	return pointer
}

// ID returns the event's id. It is "" if the event has no id yet; a store assigns one when it logs the event.
func (e *Envelope) ID() string { return e.id }

// InvocationID returns the id of the event's invocation.
func (e *Envelope) InvocationID() string { return e.invocationID }

// Author returns "user" or the name of an agent.
func (e *Envelope) Author() string { return e.author }

// Branch returns the path of agents that produced the event, such as agent_1.agent_2.
func (e *Envelope) Branch() string { return e.branch }

// IsolationScope returns the scope that limits which agents see the event. If it is "", all agents see the
// event.
func (e *Envelope) IsolationScope() string { return e.scope }

// Timestamp returns the event's time in UTC. It is zero if the event has no time yet; a store sets it when it
// logs the event. Events are ordered by their position in the log, not by their times.
func (e *Envelope) Timestamp() time.Time { return e.time }

// Partial reports whether the event is a fragment of a streamed response. A store accepts a partial event but
// does not log it.
func (e *Event) Partial() bool { return e.index.has(isPartial) }

// Role returns the role of the content, or "" if there is none.
func (e *Event) Role() string { return e.index.role }

// SaysSomething reports whether the event has content for a model or a person: a non-empty part, or a
// transcription. [Event.Parts] yields this content. An event that only changes the state has no content.
func (e *Event) SaysSomething() bool { return e.index.has(saysSomething) }

// IsSummary reports whether the event has the field actions.compaction.
func (e *Event) IsSummary() bool { return e.index.has(isSummary) }

// FunctionParts yields the function calls and responses in the order of the content's parts.
func (e *Event) FunctionParts() iter.Seq[FunctionPart] { return slices.Values(e.index.functions) }

// LongRunningToolIDs returns the ids of the event's long-running calls. The final response to a long-running
// call comes in a later event.
func (e *Event) LongRunningToolIDs() []string { return slices.Clone(e.index.longRunning) }

// Changes yields the event's changes to the session's own state, in key order. Keys with the prefix "app:",
// "user:" or "temp:" are skipped.
func (e *Event) Changes() iter.Seq[Change] {
	return e.changes(func(s statekey.Scope) bool { return s == statekey.Session })
}

// SharedChanges yields the event's changes to shared state, in key order: keys with the prefix "app:" or
// "user:".
func (e *Event) SharedChanges() iter.Seq[Change] {
	return e.changes(func(s statekey.Scope) bool { return s == statekey.App || s == statekey.User })
}

func (e *Event) changes(in func(statekey.Scope) bool) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		var types map[string]goTypes
		if len(e.types) > 0 && len(e.index.changes) > 0 {
			types = e.types.byMember("/actions/stateDelta")
		}
		for _, c := range e.index.changes {
			if in(statekey.ScopeOf(c.key)) && !yield(Change{c.key, Value{text: e.json[c.from:c.to:c.to], types: types[c.key]}}) {
				return
			}
		}
	}
}

// StateDelta returns the event's state delta with the keys of all scopes, or nil if there is none. [Value.Any]
// defines the types of the values.
func (e *Event) StateDelta() map[string]any { return e.value("actions", "stateDelta").anyMap() }

func (v Value) anyMap() map[string]any {
	members := v.Members()
	if members == nil {
		return nil
	}
	out := make(map[string]any, len(members))
	for key, v := range members {
		out[key] = v.Any()
	}
	return out
}

// Content returns the event's content, or null if there is none.
func (e *Event) Content() Value { return e.value("content").orZero() }

// orZero returns the zero Value if v is null in any form, and v otherwise.
func (v Value) orZero() Value {
	if v.isNull() {
		return Value{}
	}
	return v
}

// CustomMetadata returns the custom metadata, or nil if there is none.
func (e *Envelope) CustomMetadata() map[string]any { return e.value("customMetadata").anyMap() }

// Compaction returns the field actions.compaction, or nil if there is none. If the field does not have the form
// of an [EventCompaction], the error matches [ErrInvalid].
func (e *Event) Compaction() (*EventCompaction, error) {
	if !e.IsSummary() {
		return nil, nil
	}
	c, err := parseCompaction(e.field("actions", "compaction"))
	if err != nil {
		return nil, err
	}
	c.CompactedContent = e.value("actions", "compaction", "compactedContent").orZero()
	return c, nil
}

// Fields yields the top-level fields in order, each with its name. It skips fields that have accessors: the
// fields of the identity, and the well-formed fields of a patch.
func (e *Envelope) Fields() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		var types map[string]goTypes
		if len(e.types) > 0 {
			types = e.types.byMember("")
		}
		for name, text := range jsonvalue.Members(e.json) {
			if !yield(name, Value{text: text, types: types[name]}) {
				return
			}
		}
	}
}

// Field returns the compact JSON of a field that [Envelope.Fields] yields, such as "content" or "actions". The
// caller owns the bytes.
func (e *Envelope) Field(name string) (stdjson.RawMessage, bool) {
	text := e.field(name)
	return bytes.Clone(text), text != nil
}

// Decode stores a top-level field in the variable that into points to. It works like encoding/json, with two
// differences. A value that is decoded into an `any` gets the Go type that it had in [NewEvent]. A number in an
// `any` that exceeds float64 becomes a json.Number. If the field is absent, the variable stays unchanged. The
// error matches [ErrInvalid].
func (e *Event) Decode(name string, into any) error {
	v := e.value(name)
	if v.text == nil {
		return nil
	}
	return decodeTyped(jsonvalue.Step(name), v.text, v.types, into)
}

// MarshalJSON returns the event as ADK's event JSON: the identity, then the other fields in order. The time is
// in RFC 3339 format, in UTC, with nanoseconds.
func (e *Event) MarshalJSON() ([]byte, error) { return e.appendJSON(nil), nil }

func (e *Event) appendJSON(b []byte) []byte {
	return appendMembers(e.identity.appendJSON(append(b, '{')), e.json)
}

// appendMembers appends the members of object to the unfinished object in b, and then the closing brace.
func appendMembers(b, object []byte) []byte {
	switch {
	case object == nil:
		return append(b, '}')
	case b[len(b)-1] != '{':
		b = append(b, ',')
	}
	return append(b, object[1:]...)
}

// nilIfEmpty returns nil if the object is empty, and the object otherwise.
func nilIfEmpty(object []byte) []byte {
	if string(object) == "{}" {
		return nil
	}
	return object
}

// String returns the event's JSON.
func (e *Event) String() string { return string(e.appendJSON(nil)) }

// Footprint estimates the memory of the event in bytes. It is faster than [Record.Size], and its result is
// larger.
func (e *Event) Footprint() int {
	n := int(unsafe.Sizeof(*e)) + len(e.id) + len(e.invocationID) + len(e.author) + len(e.branch) + len(e.scope) + len(e.json)
	for i := range e.types {
		n += int(unsafe.Sizeof(e.types[i])) + len(e.types[i].pointer)
	}
	return n + e.index.footprint()
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
			b = jsonvalue.AppendQuote(jsonvalue.AppendKey(b, f.name), f.value)
		}
	}
	if e.timed {
		b = append(jsonvalue.AppendKey(b, "timestamp"), '"')
		b = append(e.time.AppendFormat(b, time.RFC3339Nano), '"')
	}
	return b
}
