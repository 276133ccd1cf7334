package patch

import (
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// Fields are the fields of a new event for [NewEvent]. Zero fields are omitted.
type Fields struct {
	ID             string // if empty, a UUID is assigned when the event is logged
	InvocationID   string
	Author         string
	Branch         string
	IsolationScope string
	Timestamp      time.Time // if zero, the time of the append, unless ZeroTime is set
	ZeroTime       bool      // keeps a zero Timestamp

	// Content is the event's content: a [Value] such as [Text] returns, a map whose values [NewValue] accepts, a
	// json.RawMessage, or any other value, written as by encoding/json. A value written as null is omitted.
	Content any

	// UsageMetadata is the model's token counts: any value whose JSON is an object with the fields of Gemini's API.
	// A value written as null is omitted.
	UsageMetadata any

	Partial            bool
	Actions            Actions
	LongRunningToolIDs []string
	CustomMetadata     map[string]any

	// Extra has further top-level fields under their JSON names, of the same types as Content. The names are those
	// of ADK's JSON, not those of Python.
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
	// "compaction" with another type whose JSON has the form of an [EventCompaction].
	Extra map[string]any
}

// Names of the fields above, which Extra must not have.
var (
	identityNames = []string{"id", "invocationId", "author", "branch", "isolationScope", "timestamp"}
	fieldNames    = []string{"content", "partial", "actions", "longRunningToolIds", "usageMetadata", "customMetadata"}
	actionNames   = []string{"stateDelta", "artifactDelta", "skipSummarization", "transferToAgent", "escalate", "compaction"}
	patchNames    = []string{"patchType", "start", "count", "replacement", "eventId", "summaryEvent", "patchId", "base", "state"}

	// Field names that other programs use for patches, and for events in database rows. They are refused instead of
	// kept as unknown fields.
	foreignNames = []string{"patch_type", "event_id", "summary_event", "event_data"}
)

// eventForm is an event's JSON without its identity, in writing order.
type eventForm struct {
	Content            any            `json:"content,omitzero"`
	Partial            bool           `json:"partial,omitzero"`
	Actions            actionsForm    `json:"actions,omitzero"`
	LongRunningToolIDs []string       `json:"longRunningToolIds,omitzero"`
	UsageMetadata      any            `json:"usageMetadata,omitzero"`
	CustomMetadata     map[string]any `json:"customMetadata,omitzero"`
	Extra              map[string]any `json:",embed"`
}

type actionsForm struct {
	StateDelta        map[string]any   `json:"stateDelta,omitzero"`
	ArtifactDelta     map[string]int64 `json:"artifactDelta,omitzero"`
	SkipSummarization bool             `json:"skipSummarization,omitzero"`
	TransferToAgent   string           `json:"transferToAgent,omitzero"`
	Escalate          bool             `json:"escalate,omitzero"`
	Compaction        *EventCompaction `json:"compaction,omitzero"`
	Extra             map[string]any   `json:",embed"`
}

// NewEvent makes an event from Go values, which it copies. It refuses values that would not come back from storage
// unchanged: an `any` may hold what [NewValue] accepts, or a [Value]. NaN, infinities and text that is not UTF-8
// are always refused. Structs are written as by encoding/json. The error is a *[FieldError] that names the field.
func NewEvent(f Fields) (*Event, error) {
	for name := range f.Extra {
		for _, names := range [][]string{identityNames, fieldNames, patchNames, foreignNames, {"seq"}} {
			if slices.Contains(names, name) {
				return nil, fieldErr(jsonvalue.Step(name), "the name is reserved and cannot be in Extra")
			}
		}
	}
	for name := range f.Actions.Extra {
		if slices.Contains(actionNames, name) && (name != "compaction" || f.Actions.Compaction != nil) {
			return nil, fieldErr("actions/"+jsonvalue.Step(name), "the name is reserved and cannot be in Extra")
		}
	}
	if c := f.Actions.Compaction; c != nil {
		if err := contentShape.check(c.CompactedContent.text); err != nil {
			return nil, err.within("/actions/compaction/compactedContent")
		}
	}
	text, types, err := writeGo(eventForm{
		Content: f.Content, Partial: f.Partial, Actions: actionsForm(f.Actions), LongRunningToolIDs: f.LongRunningToolIDs,
		UsageMetadata: f.UsageMetadata, CustomMetadata: f.CustomMetadata, Extra: f.Extra,
	}, true)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"content", "usageMetadata"} { // such as a nil pointer
		if string(jsonvalue.Member(text, name)) == "null" {
			text = jsonvalue.With(text, name, nil)
			types = types.without(func(pointer string) bool { return pointer == "/"+name })
		}
	}
	e := &Event{Envelope: Envelope{
		identity: identity{id: f.ID, invocationID: f.InvocationID, author: f.Author, branch: f.Branch, scope: f.IsolationScope},
		json:     nilIfEmpty(text), types: types,
	}}
	if !f.Timestamp.IsZero() || f.ZeroTime {
		e.time, e.timed = f.Timestamp.Round(0).UTC(), true
	}
	if err := e.derive(); err != nil {
		return nil, err
	}
	return e, e.checkContent()
}
