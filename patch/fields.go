package patch

import (
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// Fields are what [NewEvent] makes an event of. Zero fields are left out.
type Fields struct {
	ID             string // a UUID if empty, given when the event is logged
	InvocationID   string
	Author         string
	Branch         string
	IsolationScope string
	Timestamp      time.Time // the time of the append if zero, unless ZeroTime is set
	ZeroTime       bool      // Timestamp is meant, even if it is the zero time

	// Content is what the event says: what [Text] returns, another event's content, a map with these
	// fields, whose values come back as [NewValue] says, a json.RawMessage, or anything else by what
	// encoding/json writes of it. Whatever writes null is none.
	Content any

	// UsageMetadata is what the model measured: anything whose JSON is an object with the fields
	// of Gemini's API. Whatever writes null is left out.
	UsageMetadata any

	Partial            bool
	Actions            Actions
	LongRunningToolIDs []string
	CustomMetadata     map[string]any

	// Extra are further top-level fields under their JSON names, each of a type that Content
	// may have. Fields that ADK or genai have are spelled as in ADK's JSON, not as in Python.
	Extra map[string]any
}

// Actions are the actions of an event. Zero fields are left out.
type Actions struct {
	StateDelta        map[string]any
	ArtifactDelta     map[string]int64
	SkipSummarization bool
	TransferToAgent   string
	Escalate          bool
	Compaction        *EventCompaction

	// Extra are further fields under their JSON names, as in [Fields]. Where Compaction is
	// nil, a record of compaction may stand here under "compaction", of another type that
	// writes JSON which an [EventCompaction] can be read from.
	Extra map[string]any
}

// Names that stand in a field of their own and so not in Extra.
var (
	identityNames = []string{"id", "invocationId", "author", "branch", "isolationScope", "timestamp"}
	fieldNames    = []string{"content", "partial", "actions", "longRunningToolIds", "usageMetadata", "customMetadata"}
	actionNames   = []string{"stateDelta", "artifactDelta", "skipSummarization", "transferToAgent", "escalate", "compaction"}
	patchNames    = []string{"patchType", "start", "count", "replacement", "eventId", "summaryEvent", "patchId", "base", "state"}

	// Names that other programs have for a patch's fields, and for an event in a row. They are
	// refused, so that they are not taken for unknown fields.
	foreignNames = []string{"patch_type", "event_id", "summary_event", "event_data"}
)

// NewEvent makes an event from Go values. It copies them: changing f, or anything in
// it, afterwards changes nothing in the event. Values that would not come back from
// storage as they are are refused: in an `any` only what [NewValue] takes, a [Value]
// does; NaN, infinities and text that is not UTF-8 never do. A struct is what
// encoding/json writes of it. The error is a *[FieldError] that names the field.
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
