package compaction

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Cleared is what stands in the place of a cleared tool result.
const Cleared = "[old tool result cleared]"

// ClearToolResults returns patches that replace the results of all but the last keepLast
// function responses of the visible log by [Cleared], without any model. Each is a splice
// that keeps the state; the response keeps its call id and name, and the events in which
// it stands, their place and all else but their ids. Responses that are short already, or
// that an open long-running call may still need, are left as they are. The patches are
// to be applied to v in one go, in their order; there are none if there is nothing to
// clear. An event with a response that answers no visible call is left as it is too, for a
// patch may not put such a one in. keepLast below 0 counts as 0.
//
// The error is nil unless an event cannot be rebuilt with its new content.
func ClearToolResults(v fold.View, keepLast int) ([]*patch.PatchEvent, error) {
	s := newVisible(v, Run{})
	s.settle(Config{MaxWaitingCalls: math.MaxInt}, func(int) bool { return false })
	type place struct{ index, part int }
	var responses []place
	unpaired := unpairedResponses(v)
	for i, e := range s.entries {
		if e.Summary || unpaired[i] != nil { // a patch may not put in what answers no call
			continue
		}
		for p := range e.Event.FunctionParts() {
			if p.Response {
				responses = append(responses, place{i, p.Index})
			}
		}
	}
	responses = responses[:max(0, len(responses)-max(0, keepLast))]
	clear := map[int][]int{} // parts by event
	for _, r := range responses {
		if !s.stays[r.index] {
			clear[r.index] = append(clear[r.index], r.part)
		}
	}
	var patches []*patch.PatchEvent
	for i, e := range s.entries {
		cleared, err := clearParts(e.Event, clear[i])
		if err != nil {
			return nil, fmt.Errorf("visible event %d (id %q): %w", i, e.Event.ID(), err)
		}
		if cleared == nil {
			continue
		}
		patches = append(patches, patch.NewSplice(i, 1, cleared).WithState(patch.Keep).WithAuthor(record.Author).WithBase(v.PatchSeq()))
	}
	return patches, nil
}

// clearParts returns the event with the results of the given parts cleared, under a new
// id; nil if there is nothing to clear.
func clearParts(e *patch.Event, parts []int) (*patch.Event, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	content, all, err := contentOf(e)
	if err != nil {
		return nil, err
	}
	placeholder, err := json.Marshal(map[string]string{"result": Cleared})
	if err != nil {
		return nil, err
	}
	changed := false
	for _, i := range parts {
		var part, response map[string]json.RawMessage
		if err := json.Unmarshal(all[i], &part); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(part["functionResponse"], &response); err != nil {
			return nil, err
		}
		if len(response["response"]) <= len(placeholder) {
			continue
		}
		changed = true
		response["response"] = placeholder
		delete(response, "parts") // media that the function returned
		if part["functionResponse"], err = json.Marshal(response); err != nil {
			return nil, err
		}
		if all[i], err = json.Marshal(part); err != nil {
			return nil, err
		}
	}
	if !changed {
		return nil, nil
	}
	if content["parts"], err = json.Marshal(all); err != nil {
		return nil, err
	}
	return rebuilt(e, content)
}

// contentOf returns the members of an event's content, and its parts.
func contentOf(e *patch.Event) (content map[string]json.RawMessage, parts []json.RawMessage, err error) {
	if err = e.Decode("content", &content); err == nil {
		err = json.Unmarshal(content["parts"], &parts)
	}
	return content, parts, err
}

// fieldsOf returns all of an event's fields.
func fieldsOf(e *patch.Event) (fields map[string]json.RawMessage, err error) {
	text, err := e.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	return fields, err
}

// rebuilt returns the event with other content, a new id, and no state delta: what the
// event set is kept by the patch.
func rebuilt(e *patch.Event, content map[string]json.RawMessage) (*patch.Event, error) {
	fields, err := fieldsOf(e)
	if err != nil {
		return nil, err
	}
	if fields["id"], err = json.Marshal(uuid.NewString()); err != nil {
		return nil, err
	}
	if fields["content"], err = json.Marshal(content); err != nil {
		return nil, err
	}
	var actions map[string]json.RawMessage
	if err := json.Unmarshal(fields["actions"], &actions); err == nil && actions["stateDelta"] != nil {
		delete(actions, "stateDelta")
		if fields["actions"], err = json.Marshal(actions); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return patch.ParseEvent(text)
}
