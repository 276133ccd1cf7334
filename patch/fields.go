package patch

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// Fields are the fields of a new event: see [NewEvent]. Zero fields are omitted.
type Fields struct {
	ID             string // a UUID if empty, given when the event is logged
	InvocationID   string
	Author         string
	Branch         string
	IsolationScope string
	Timestamp      time.Time // the time of the append if zero, unless ZeroTime is set
	ZeroTime       bool      // keeps a zero Timestamp

	// Content is the event's content: a [Value] such as [Text] returns, a map whose values [NewValue]
	// accepts, a json.RawMessage, or any other value, which is written as by encoding/json. A value that is written
	// as null is omitted.
	Content any

	// UsageMetadata is the model's token counts: any value whose JSON is an object with the fields of
	// Gemini's API. A value that is written as null is omitted.
	UsageMetadata any

	Partial            bool
	Actions            Actions
	LongRunningToolIDs []string
	CustomMetadata     map[string]any

	// Extra has further top-level fields under their JSON names, of the types that Content may have. The
	// names are those of ADK's JSON, not those of Python.
	Extra map[string]any
}

// Actions are the actions of an event. Zero fields are omitted.
type Actions struct {
	StateDelta        map[string]any
	ArtifactDelta     map[string]int64
	SkipSummarization bool
	TransferToAgent   string
	Escalate          bool
	Compaction        *EventCompaction

	// Extra has further fields under their JSON names, as in [Fields]. If Compaction is nil, Extra may have
	// "compaction" with a value of another type whose JSON has the form of an [EventCompaction].
	Extra map[string]any
}

// Names with a field of their own, which Extra must not have.
var (
	identityNames = []string{"id", "invocationId", "author", "branch", "isolationScope", "timestamp"}
	fieldNames    = []string{"content", "partial", "actions", "longRunningToolIds", "usageMetadata", "customMetadata"}
	actionNames   = []string{"stateDelta", "artifactDelta", "skipSummarization", "transferToAgent", "escalate", "compaction"}
	patchNames    = []string{"patchType", "start", "count", "replacement", "eventId", "summaryEvent", "patchId", "base", "state"}

	// Names of other programs for a patch's fields, and for an event in a database row. They are refused,
	// so that they do not pass as unknown fields.
	foreignNames = []string{"patch_type", "event_id", "summary_event", "event_data"}
)

// NewEvent makes an event from Go values, which it copies. It refuses values that would come back from storage
// changed: in an `any` it accepts what [NewValue] accepts, and a [Value]; it never accepts NaN, infinities and text
// that is not UTF-8. Structs are written as by encoding/json. The error is a *[FieldError] that names the field.
func NewEvent(f Fields) (*Event, error) {
	if c := f.Actions.Compaction; c != nil {
		if err := contentShape.check(c.CompactedContent.text); err != nil {
			return nil, err.within("/actions/compaction/compactedContent")
		}
	}
	w := newObjectWriter("")
	w.putUnlessNull("content", f.Content)
	if f.Partial {
		w.put("partial", true)
	}
	w.putActions(f.Actions)
	if f.LongRunningToolIDs != nil {
		w.put("longRunningToolIds", &f.LongRunningToolIDs)
	}
	w.putUnlessNull("usageMetadata", f.UsageMetadata)
	if f.CustomMetadata != nil {
		w.put("customMetadata", f.CustomMetadata)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Extra)) {
		for _, names := range [][]string{identityNames, fieldNames, patchNames, foreignNames, {"seq"}} {
			if slices.Contains(names, name) {
				return nil, fieldErr(jsonvalue.Step(name), "the name has a meaning of its own and cannot be in Extra")
			}
		}
		w.put(name, f.Extra[name])
	}
	if w.err != nil {
		return nil, w.err
	}
	e := &Event{Envelope: Envelope{
		identity: identity{id: f.ID, invocationID: f.InvocationID, author: f.Author, branch: f.Branch, scope: f.IsolationScope},
		json:     nilIfEmpty(w.end()), types: w.types,
	}}
	if !f.Timestamp.IsZero() || f.ZeroTime {
		e.time, e.timed = f.Timestamp.Round(0).UTC(), true
	}
	if err := e.derive(); err != nil {
		return nil, err
	}
	return e, e.checkContent()
}

// objectWriter writes an object member by member from Go values. After an error it writes nothing.
type objectWriter struct {
	pointer string // to the object
	text    []byte
	types   goTypes
	err     error
}

// newObjectWriter returns a writer of the object that a pointer leads to in an event.
func newObjectWriter(pointer string) *objectWriter {
	return &objectWriter{pointer: pointer, text: []byte{'{'}}
}

// put writes a member.
func (w *objectWriter) put(name string, v any) {
	if w.err != nil {
		return
	}
	text, types, err := writeGo(w.pointer+"/"+jsonvalue.Step(name), v)
	switch {
	case err != nil:
		w.err = err
	case !utf8.ValidString(name):
		w.err = notUTF8(strings.TrimPrefix(w.pointer, "/"), name)
	default:
		w.text = append(jsonvalue.AppendKey(w.text, name), text...)
		w.types = append(w.types, types...)
	}
}

// putUnlessNull writes a member whose value is not written as null, as a nil pointer is.
func (w *objectWriter) putUnlessNull(name string, v any) {
	before, types := len(w.text), len(w.types)
	if w.put(name, v); bytes.HasSuffix(w.text[before:], []byte(`":null`)) {
		w.text, w.types = w.text[:before], w.types[:types]
	}
}

// end returns the object.
func (w *objectWriter) end() []byte { return append(w.text, '}') }

// putActions writes actions, unless there are none.
func (w *objectWriter) putActions(a Actions) {
	in := newObjectWriter("/actions")
	if a.StateDelta != nil {
		in.put("stateDelta", a.StateDelta)
	}
	if a.ArtifactDelta != nil {
		in.put("artifactDelta", &a.ArtifactDelta)
	}
	if a.SkipSummarization {
		in.put("skipSummarization", true)
	}
	if a.TransferToAgent != "" {
		in.put("transferToAgent", a.TransferToAgent)
	}
	if a.Escalate {
		in.put("escalate", true)
	}
	if a.Compaction != nil {
		in.put("compaction", a.Compaction)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Extra)) {
		if in.err == nil && slices.Contains(actionNames, name) && (name != "compaction" || a.Compaction != nil) {
			in.err = fieldErr("actions/"+jsonvalue.Step(name), "the name has a meaning of its own and cannot be in Extra")
		}
		in.put(name, a.Extra[name])
	}
	switch {
	case w.err != nil:
	case in.err != nil:
		w.err = in.err
	case jsonvalue.Depth(in.text) > maxValueDepth:
		w.err = fieldErr("actions", "nested deeper than %d", maxValueDepth)
	case len(in.text) > len("{"):
		w.text = append(jsonvalue.AppendKey(w.text, "actions"), in.end()...)
		w.types = append(w.types, in.types...)
	}
}
