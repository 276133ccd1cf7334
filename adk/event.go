package adk

import (
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// NewEvent makes an event of the log from one of ADK. It copies: changing e afterwards
// changes nothing in the event. Every field comes back equal from [SessionEvent]; times
// come back in UTC, and a zero timestamp stays zero. A missing id is given when the event
// is logged.
//
// Inside an `any` (state, arguments, responses, metadata, output) booleans, numbers,
// strings, []byte, json.Number, slices, and maps with string keys come back with their Go
// types. A value of another type comes back as what its JSON says, an integer as an int64;
// an error comes back as its text. So it is with a RequestedInput's schema: what JSON does
// not say of it, such as PropertyOrder, is lost. What JSON cannot carry is refused: the
// error matches [patch.ErrInvalid] and names the field.
func NewEvent(e *session.Event) (*patch.Event, error) {
	if e == nil {
		return nil, fmt.Errorf("%w: the event is nil", patch.ErrInvalid)
	}
	p, err := patch.NewEvent(eventFields(e))
	if err == nil {
		return p, nil
	}
	// There may be a value in it that does not come back as it is, such as the function
	// call inside a request for confirmation.
	return patch.NewEvent(eventFields(plainEvent(e)))
}

// SessionEvent gives an event of the log as ADK knows it. It is the caller's own. Fields
// that ADK does not know stay in the log.
//
// Of an event that was imported as JSON, a field may have a shape that ADK does not know.
// Then the error matches [patch.ErrInvalid] and names the fields, and the event that is
// returned has the others.
func SessionEvent(p *patch.Event) (*session.Event, error) {
	if p == nil {
		return nil, fmt.Errorf("%w: the event is nil", patch.ErrInvalid)
	}
	e := &session.Event{
		ID: p.ID(), InvocationID: p.InvocationID(), Author: p.Author(),
		Branch: p.Branch(), IsolationScope: p.IsolationScope(), Timestamp: p.Timestamp(),
	}
	e.Partial = p.Partial()
	var errs []error
	for _, f := range append(extraFields(e),
		field{"content", &e.Content},
		field{"actions", &e.Actions},
		field{"longRunningToolIds", &e.LongRunningToolIDs},
		field{"usageMetadata", &e.UsageMetadata},
		field{"customMetadata", &e.CustomMetadata},
	) {
		if err := p.Decode(f.name, f.pointer); err != nil {
			reflect.ValueOf(f.pointer).Elem().SetZero()
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return e, fmt.Errorf("event %q: %w", p.ID(), errors.Join(errs...))
	}
	return e, nil
}

// eventFields says an ADK event in the log's terms.
func eventFields(e *session.Event) patch.Fields {
	f := patch.Fields{
		ID: e.ID, InvocationID: e.InvocationID, Author: e.Author,
		Branch: e.Branch, IsolationScope: e.IsolationScope,
		Timestamp: e.Timestamp, ZeroTime: e.Timestamp.IsZero(),
		Content: e.Content, Partial: e.Partial,
		Actions: patch.Actions{
			StateDelta: e.Actions.StateDelta, ArtifactDelta: e.Actions.ArtifactDelta,
			SkipSummarization: e.Actions.SkipSummarization,
			TransferToAgent:   e.Actions.TransferToAgent, Escalate: e.Actions.Escalate,
		},
		LongRunningToolIDs: e.LongRunningToolIDs,
		UsageMetadata:      e.UsageMetadata, CustomMetadata: e.CustomMetadata,
	}
	if c := e.Actions.RequestedToolConfirmations; c != nil {
		f.Actions.Extra = map[string]any{"requestedToolConfirmations": c}
	}
	for _, x := range extraFields(e) {
		if !reflect.ValueOf(x.pointer).Elem().IsZero() {
			if f.Extra == nil {
				f.Extra = map[string]any{}
			}
			f.Extra[x.name] = x.pointer
		}
	}
	return f
}

// field is a field of an event under its JSON name.
type field struct {
	name    string
	pointer any
}

// extraFields are the fields that the log keeps without knowing their meaning.
func extraFields(e *session.Event) []field {
	return []field{
		{"citationMetadata", &e.CitationMetadata},
		{"groundingMetadata", &e.GroundingMetadata},
		{"logprobsResult", &e.LogprobsResult},
		{"inputTranscription", &e.InputTranscription},
		{"outputTranscription", &e.OutputTranscription},
		{"modelVersion", &e.ModelVersion},
		{"turnComplete", &e.TurnComplete},
		{"interrupted", &e.Interrupted},
		{"sessionResumptionHandle", &e.SessionResumptionHandle},
		{"errorCode", &e.ErrorCode},
		{"errorMessage", &e.ErrorMessage},
		{"finishReason", &e.FinishReason},
		{"avgLogprobs", &e.AvgLogprobs},
		{"routes", &e.Routes},
		{"requestedInput", &e.RequestedInput},
		{"output", &e.Output},
		{"nodeInfo", &e.NodeInfo},
	}
}
