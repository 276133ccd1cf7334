package patch

import (
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
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
	// accepts, a json.RawMessage, or any other value, which encoding/json writes. A value that is written
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
// that is not UTF-8. Structs are written by encoding/json. The error is a *[FieldError] that names the field.
func NewEvent(f Fields) (*Event, error) {
	e := &Event{Envelope: Envelope{identity: identity{
		id: f.ID, invocationID: f.InvocationID, author: f.Author, branch: f.Branch, scope: f.IsolationScope,
	}}}
	if !f.Timestamp.IsZero() || f.ZeroTime {
		e.timed = true
		e.time = f.Timestamp.Round(0).UTC()
	}
	var w goWriter
	var err error
	add := func(name string, v any) {
		if err != nil {
			return
		}
		err = w.within(name, func() error {
			if err := w.str(name); err != nil {
				return err
			}
			w.buf = nil
			noted := len(w.types)
			if err := w.field(v); err != nil {
				return err
			}
			if string(w.buf) == "null" && slices.Contains(fieldNames, name) {
				w.types = w.types[:noted]
				return nil // a nil pointer, say
			}
			e.members = append(e.members, member{name, w.buf})
			return nil
		})
	}
	if f.Content != nil {
		add("content", f.Content)
	}
	if f.Partial {
		add("partial", true)
	}
	for name := range f.Actions.Extra {
		if slices.Contains(actionNames, name) && (name != "compaction" || f.Actions.Compaction != nil) {
			return nil, fieldErr("actions/"+name, "the name has a meaning of its own and cannot be in Extra")
		}
	}
	if actions := f.Actions.members(); actions != nil {
		add("actions", actions)
	}
	if f.LongRunningToolIDs != nil {
		add("longRunningToolIds", unnoted{f.LongRunningToolIDs})
	}
	if f.UsageMetadata != nil {
		add("usageMetadata", f.UsageMetadata)
	}
	if f.CustomMetadata != nil {
		add("customMetadata", f.CustomMetadata)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Extra)) {
		if slices.Contains(identityNames, name) || slices.Contains(fieldNames, name) ||
			slices.Contains(patchNames, name) || slices.Contains(foreignNames, name) || name == "seq" {
			return nil, fieldErr(jsontext.EscapeStep(name), "the name has a meaning of its own and cannot be in Extra")
		}
		add(name, f.Extra[name])
	}
	if err != nil {
		return nil, err
	}
	e.types = w.types
	if err := e.derive(); err != nil {
		return nil, err
	}
	if c := f.Actions.Compaction; c != nil {
		if err := contentShape.check(c.CompactedContent.text); err != nil {
			return nil, err.within("/actions/compaction/compactedContent")
		}
	}
	if err := e.checkContent(); err != nil {
		return nil, err
	}
	return e, nil
}

func (a Actions) members() (fields []orderedField) {
	if a.StateDelta != nil {
		fields = append(fields, orderedField{"stateDelta", a.StateDelta})
	}
	if a.ArtifactDelta != nil {
		fields = append(fields, orderedField{"artifactDelta", unnoted{a.ArtifactDelta}})
	}
	if a.SkipSummarization {
		fields = append(fields, orderedField{"skipSummarization", true})
	}
	if a.TransferToAgent != "" {
		fields = append(fields, orderedField{"transferToAgent", a.TransferToAgent})
	}
	if a.Escalate {
		fields = append(fields, orderedField{"escalate", true})
	}
	if a.Compaction != nil {
		fields = append(fields, orderedField{"compaction", a.Compaction.members()})
	}
	for _, name := range slices.Sorted(maps.Keys(a.Extra)) {
		fields = append(fields, orderedField{name, a.Extra[name]})
	}
	return fields
}
