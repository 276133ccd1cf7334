package compaction

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

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
// clear. [fold.View.History] shows what was cleared, and summaries that come later are made
// of it. An event with a response that answers no visible call is left as it is too, for a
// patch may not put such a one in. keepLast below 0 counts as 0.
//
// The error is nil unless an event cannot be rebuilt with its new content.
func ClearToolResults(v fold.View, keepLast int) ([]*patch.PatchEvent, error) {
	s := newVisible(v, Run{})
	s.settle(Config{MaxWaitingCalls: math.MaxInt}, func(int) bool { return false })
	results := s.results()
	results = results[:max(0, len(results)-max(0, keepLast))]
	results = slices.DeleteFunc(results, func(r Result) bool { return s.stays[r.Index] })
	return s.clear(results, uuid.NewString)
}

// clear returns patches that clear results, given in order: a splice for each event of which
// any is cleared, the first for the first event.
func (s *visible) clear(results []Result, newID func() string) ([]*patch.PatchEvent, error) {
	var patches []*patch.PatchEvent
	for len(results) > 0 {
		i := results[0].Index
		var parts []int
		for len(results) > 0 && results[0].Index == i {
			parts = append(parts, results[0].Part)
			results = results[1:]
		}
		cleared, err := clearParts(s.entries[i], parts, newID)
		if err != nil {
			return nil, fmt.Errorf("visible event %d (id %q): %w", i, s.entries[i].Event.ID(), err)
		}
		if cleared == nil {
			continue
		}
		patches = append(patches, patch.NewSplice(i, 1, cleared).WithState(patch.Keep).WithAuthor(record.Author).WithBase(s.view.PatchSeq()))
	}
	return patches, nil
}

// placeholder is what a cleared result says.
var placeholder = json.RawMessage(`{"result":"` + Cleared + `"}`)

// clearParts returns the event with the results of the given parts cleared, under a new
// id; nil if there is nothing to clear.
func clearParts(entry fold.Entry, parts []int, newID func() string) (*patch.Event, error) {
	_, all, err := contentOf(entry.Event)
	if err != nil {
		return nil, err
	}
	cleared := map[int]json.RawMessage{}
	for _, i := range parts {
		var part, response map[string]json.RawMessage
		if err := json.Unmarshal(all[i], &part); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(part["functionResponse"], &response); err != nil {
			return nil, err
		}
		if isShort(response["response"]) {
			continue
		}
		response["response"] = placeholder
		delete(response, "parts") // media that the function returned
		if part["functionResponse"], err = json.Marshal(response); err != nil {
			return nil, err
		}
		if cleared[i], err = json.Marshal(part); err != nil {
			return nil, err
		}
	}
	if len(cleared) == 0 {
		return nil, nil
	}
	return entry.Event.StandIn(newID(), entry.Seq, cleared)
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

// isShort reports whether a result is no longer than what would say that it was cleared.
func isShort(response []byte) bool { return len(response) <= len(placeholder) }
