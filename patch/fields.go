package patch

import (
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// Fields holds the fields of a new event for [NewEvent]. Zero fields are omitted.
type Fields struct {
	ID             string // if empty, the store assigns a UUID when it logs the event
	InvocationID   string
	Author         string
	Branch         string
	IsolationScope string
	Timestamp      time.Time // if zero, the store sets the time of the append, unless ZeroTime is set
	ZeroTime       bool      // keeps a zero Timestamp

	// Content is the event's content. It can be a [Value] such as [Text] returns, a map whose values [NewValue]
	// accepts, or a json.RawMessage. Any other value is written as encoding/json writes it. A value that is
	// written as null is omitted.
	Content any

	// UsageMetadata holds the model's token counts. It can be any value whose JSON is an object with the fields
	// of Gemini's API. A value that is written as null is omitted.
	UsageMetadata any

	Partial            bool
	Actions            Actions
	LongRunningToolIDs []string
	CustomMetadata     map[string]any

	// Extra holds additional top-level fields by their JSON names in ADK for Go. A value can have any type that
	// Content can have.
	Extra map[string]any
}

// Actions holds the actions of an event. Zero fields are omitted.
type Actions struct {
	StateDelta        map[string]any
	ArtifactDelta     map[string]int64
	SkipSummarization bool
	TransferToAgent   string
	Escalate          bool
	Compaction        *EventCompaction

	// Extra holds additional fields by their JSON names, as in [Fields]. If Compaction is nil, Extra may
	// contain "compaction". Its value can have any type whose JSON has the form of an [EventCompaction].
	Extra map[string]any
}

// Names of the fields above. Extra must not contain them.
var (
	identityNames = []string{"id", "invocationId", "author", "branch", "isolationScope", "timestamp"}
	fieldNames    = []string{"content", "partial", "actions", "longRunningToolIds", "usageMetadata", "customMetadata"}
	actionNames   = []string{"stateDelta", "artifactDelta", "skipSummarization", "transferToAgent", "escalate", "compaction"}
	patchNames    = []string{"patchType", "start", "count", "replacement", "eventId", "summaryEvent", "patchId", "base", "state"}

	// Names that other programs use for fields of patches, and for columns of events in a database. They are
	// refused, not kept as unknown fields.
	foreignNames = []string{"patch_type", "event_id", "summary_event", "event_data"}
)

// eventForm is an event's JSON without its identity, in the order in which fields are written.
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

// NewEvent makes an event from Go values, which it copies. It refuses a value that would not come back from
// storage unchanged. An `any` can contain a [Value] or a value that [NewValue] accepts. NaN, infinities and
// text that is not UTF-8 are always refused. Structs are written as encoding/json writes them. The error is a
// *[FieldError] that names the field.
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
	for _, name := range []string{"content", "usageMetadata"} { // a nil pointer, for example, is written as null
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
	if err := e.buildIndex(); err != nil {
		return nil, err
	}
	return e, e.checkContent()
}
