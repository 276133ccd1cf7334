// Package records has properties of events and patches that only packages of this module need.
package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// BranchWithoutRuns returns a branch without the run numbers of ADK's workflows. From each element it removes
// the text from "@" on. It allocates only if the branch has an "@".
func BranchWithoutRuns(branch string) string {
	if !strings.Contains(branch, "@") {
		return branch
	}
	elements := strings.Split(branch, ".")
	for i, e := range elements {
		elements[i], _, _ = strings.Cut(e, "@")
	}
	return strings.Join(elements, ".")
}

// Names of ADK's functions that an agent calls to ask the user. It may take arbitrarily long until the user
// answers.
const (
	requests            = "adk_request_"
	RequestConfirmation = requests + "confirmation"
	RequestCredential   = requests + "credential"
)

// IsRequest reports whether a function asks the user.
func IsRequest(function string) bool { return strings.HasPrefix(function, requests) }

// IsLongRunning reports whether the event marks a call as long-running, so that its final response comes later.
func IsLongRunning(e *patch.Event, callID string) bool {
	return slices.Contains(e.LongRunningToolIDs(), callID)
}

// LoggedTokens returns the estimated tokens of an event before its results were cleared or shortened.
func LoggedTokens(e *patch.Event) int {
	if o, ok := e.Origin(); ok {
		return max(o.Tokens, e.EstimatedTokens())
	}
	return e.EstimatedTokens()
}

// Recalled returns the id of the original if the event is marked as a copy of a call that became visible again.
// As in [patch.Event.Origin], a mark is valid only if it names the event's own id.
func Recalled(e *patch.Event) (of string, ok bool) {
	text, _ := e.Field("customMetadata")
	if e.ID() == "" || !bytes.Contains(text, []byte(`"recalled"`)) {
		return "", false
	}
	var metadata map[string]json.RawMessage
	var own struct{ Recalled, As string }
	if json.Unmarshal(text, &metadata) != nil || json.Unmarshal(metadata[patch.OwnMetadata], &own) != nil || own.As != e.ID() || own.Recalled == "" {
		return "", false
	}
	return own.Recalled, true
}

// SharedChanges yields the changes of shared state that are made when the record is logged. They come from the
// event, or from the events inside the patch, in order.
func SharedChanges(r patch.Record) iter.Seq[patch.Change] {
	return func(yield func(patch.Change) bool) {
		for _, e := range r.Events() {
			for c := range e.SharedChanges() {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// IsIndexed reports whether the patch refers to visible events by index, and therefore needs a base.
func IsIndexed(p *patch.PatchEvent) bool {
	return p.Type() == patch.Splice || p.Type() == patch.Summarise
}

// LacksBase reports whether the patch has no base, or a null base. The caller may then set one. A malformed
// base is not missing; [patch.PatchEvent.Validate] refuses it.
func LacksBase(p *patch.PatchEvent) bool {
	_, ok := p.Base()
	text, _ := p.Field("base")
	return !ok && (text == nil || string(text) == "null")
}

// HasDelta reports whether the event sets state that is logged.
func HasDelta(e *patch.Event) bool {
	for range e.Changes() {
		return true
	}
	for range e.SharedChanges() {
		return true
	}
	return false
}

// PromptTokens returns the number of prompt tokens that the model reported in the event, or 0.
func PromptTokens(e *patch.Event) int {
	if e.Role() == "user" { // avoids the search for the field, which costs more
		return 0
	}
	var usage struct {
		PromptTokenCount json.RawMessage
	}
	if e.Decode("usageMetadata", &usage) != nil {
		return 0
	}
	n, err := strconv.Atoi(string(usage.PromptTokenCount))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// JSON returns the value's JSON text, or nil for null.
func JSON(v patch.Value) json.RawMessage {
	if text := v.String(); text != "null" {
		return json.RawMessage(text)
	}
	return nil
}

// Envelope returns the envelope of the record's event or patch. It is empty if the record has neither.
func Envelope(r patch.Record) *patch.Envelope {
	switch {
	case r.Event != nil:
		return &r.Event.Envelope
	case r.Patch != nil:
		return &r.Patch.Envelope
	}
	return &patch.Envelope{}
}

// ReadAll reads the initial state and all records of a log in the text form. Errors come from [patch.Decoder].
func ReadAll(d *patch.Decoder) (log []patch.Record, initial map[string]patch.Value, err error) {
	initial, _, err = d.InitialState()
	for err == nil {
		var r patch.Record
		if r, err = d.Next(); err == nil {
			log = append(log, r)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return log, initial, nil
}
