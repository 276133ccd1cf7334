// Package records says of events and patches what only packages of this module ask.
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

// BranchWithoutRuns returns a branch without what stands behind an @ in each of its
// elements: ADK's workflows number their runs so. It allocates only if there is an @.
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

// Functions that an agent calls to ask the user, by their names in ADK. The user's side answers them, however long that
// takes.
const (
	requests            = "adk_request_"
	RequestConfirmation = requests + "confirmation"
	RequestCredential   = requests + "credential"
)

// IsRequest reports whether an agent asks the user by calling the function.
func IsRequest(function string) bool { return strings.HasPrefix(function, requests) }

// IsLongRunning reports whether the event says that the final response to a call comes later.
func IsLongRunning(e *patch.Event, callID string) bool {
	return slices.Contains(e.LongRunningToolIDs(), callID)
}

// LoggedTokens is what the event takes in a prompt, as estimated, before results in it were
// cleared or shortened.
func LoggedTokens(e *patch.Event) int {
	if o, ok := e.Origin(); ok {
		return max(o.Tokens, e.EstimatedTokens())
	}
	return e.EstimatedTokens()
}

// Recalled returns the id of the event of which this one says that it is a copy, of a call that
// came back into sight, and whether it says so. It is of the event's own id, as [patch.Event.Origin] is.
func Recalled(e *patch.Event) (of string, ok bool) {
	text, _ := e.Field("customMetadata")
	if e.ID() == "" || !bytes.Contains(text, []byte(`"recalled"`)) {
		return "", false
	}
	var said map[string]json.RawMessage
	var own struct{ Recalled, As string }
	if json.Unmarshal(text, &said) != nil || json.Unmarshal(said[patch.OwnMetadata], &own) != nil || own.As != e.ID() || own.Recalled == "" {
		return "", false
	}
	return own.Recalled, true
}

// SharedChanges yields what logging the record sets in the scopes that sessions share: by the
// event, or by the events inside the patch, in their order.
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

// IsIndexed reports whether the patch names visible events by index, so that it needs
// to say what its author had seen.
func IsIndexed(p *patch.PatchEvent) bool {
	return p.Type() == patch.Splice || p.Type() == patch.Summarise
}

// LacksBase reports whether the patch says nothing of its base, so that who logs it may say
// it in the author's place. A null says nothing. A malformed base says something, and
// [patch.PatchEvent.Validate] refuses it.
func LacksBase(p *patch.PatchEvent) bool {
	_, ok := p.Base()
	text, _ := p.Field("base")
	return !ok && (text == nil || string(text) == "null")
}

// HasDelta reports whether the event sets any state that is logged.
func HasDelta(e *patch.Event) bool {
	for range e.Changes() {
		return true
	}
	for range e.SharedChanges() {
		return true
	}
	return false
}

// PromptTokens returns how long the prompt was, in tokens, that the event answers, as the model
// measured it, or 0 if the event does not say.
func PromptTokens(e *patch.Event) int {
	if e.Role() == "user" { // to look for the field is the dearer part
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

// JSON returns the value's JSON text, or nil of null.
func JSON(v patch.Value) json.RawMessage {
	if text := v.String(); text != "null" {
		return json.RawMessage(text)
	}
	return nil
}

// Envelope returns what the record's event or patch says as either does; it is empty if there is
// neither.
func Envelope(r patch.Record) *patch.Envelope {
	switch {
	case r.Event != nil:
		return &r.Event.Envelope
	case r.Patch != nil:
		return &r.Patch.Envelope
	}
	return &patch.Envelope{}
}

// ReadAll reads all records and the initial state of a log in the text form. The error is as from
// [patch.Decoder.Next].
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
