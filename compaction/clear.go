package compaction

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// ClearedResult replaces a cleared tool result.
const ClearedResult = "[old tool result cleared]"

// ClearToolResults returns patches that replace the results of all function responses of the visible log, except the
// last keepLast, by [ClearedResult]. It uses no model. Each patch is a splice that keeps the state. A response keeps
// its call id and name. Its event gets a new id and keeps its place and all other fields. Three kinds of responses are
// not changed: short responses; responses that an open long-running call may still need; and responses in an event that
// also has a response without a visible call, since a patch may not insert such an event. Apply the patches to v in one
// call, in their order; there are none if there is nothing to clear. [fold.View.History] and later summaries use the
// original results. keepLast below 0 counts as 0.
//
// The error is nil unless an event cannot be rebuilt with its new content.
func ClearToolResults(v fold.View, keepLast int) ([]*patch.PatchEvent, error) {
	s := newShape(v, Run{})
	x := s.clearable(Config{})
	results := s.results()
	results = results[:max(0, len(results)-max(0, keepLast))]
	return s.clear(slices.DeleteFunc(results, func(r result) bool { return x.stays[r.Index] }))
}

// clear returns patches that clear results, given in order: one splice for each event with such results, in the events'
// order.
func (s *shape) clear(results []result) ([]*patch.PatchEvent, error) {
	var patches []*patch.PatchEvent
	for len(results) > 0 {
		i := results[0].Index
		var parts []int
		for len(results) > 0 && results[0].Index == i {
			parts = append(parts, results[0].Part)
			results = results[1:]
		}
		cleared, err := clearParts(s.entries[i], parts)
		if err != nil {
			return nil, fmt.Errorf("visible event %d (id %q): %w", i, s.entries[i].Event.ID(), err)
		}
		if cleared == nil {
			continue
		}
		patches = append(patches, patch.NewSplice(i, 1, cleared).WithState(patch.Keep).WithAuthor(patch.CompactionAuthor).WithBase(s.view.PatchSeq()))
	}
	return patches, nil
}

// placeholder is the response of a cleared result.
var placeholder = json.RawMessage(`{"result":"` + ClearedResult + `"}`)

// clearParts returns the event with the results in the given parts cleared, under a new id, or nil if there is nothing
// to clear.
func clearParts(entry fold.Entry, parts []int) (*patch.Event, error) {
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
	return entry.Event.StandIn(uuid.NewString(), entry.Seq, cleared)
}

// contentOf returns the members of an event's content, and the content's parts.
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

// isShort reports whether a result is at most as long as the placeholder.
func isShort(response []byte) bool { return len(response) <= len(placeholder) }

// result is a function's result in a visible log.
type result struct {
	Index int // of the event
	Part  int // of the event's content
	saves int // estimated savings in tokens; 0 if the result must not be cleared, like the user's answers
}

// results returns the results of visible calls, in order.
func (s *shape) results() []result {
	unpaired := unpairedResponses(s.view)
	var results []result
	for i, e := range s.entries {
		if e.Summary || !hasFunctionPart(e.Event, true) || unpaired[i] != nil { // a patch may not insert a response without a call
			continue
		}
		for n, p := range e.Event.Parts() {
			if p.Kind != patch.PartResponse {
				continue
			}
			r := result{Index: i, Part: n}
			if response := records.JSON(p.Response); e.Event.Author() != "user" && !isShort(response) {
				r.saves = max(0, utf8.RuneCount(response)-len(placeholder)) / patch.RunesPerToken
			}
			results = append(results, r)
		}
	}
	return results
}

// clearable selects the events whose results may be cleared.
func (s *shape) clearable(cfg Config) *selection {
	cfg.limits.WaitingCalls = math.MaxInt
	return s.selection(cfg, func(int) bool { return false })
}

// clearing returns the window over the results that can be cleared, if that saves at least [Config.ClearAfter] tokens.
// saved is the tokens that it saves, held the tokens that stay in any case.
func (s *shape) clearing(cfg Config) (w *Window, saved, held int) {
	if s.sum(s.raw) < cfg.ClearAfter { // the rest is expensive
		return nil, 0, 0
	}
	results := s.results()
	old := max(0, len(results)-cfg.limits.Results)
	for _, r := range results[old:] {
		held += r.saves
	}
	results = slices.DeleteFunc(results[:old], func(r result) bool {
		saved += r.saves
		return r.saves == 0
	})
	if saved < cfg.ClearAfter {
		return nil, saved, held
	}
	x := s.clearable(cfg)
	held += x.held()
	results = slices.DeleteFunc(results, func(r result) bool {
		if x.stays[r.Index] {
			saved -= r.saves
		}
		return x.stays[r.Index]
	})
	if saved < cfg.ClearAfter {
		return nil, saved, held
	}
	w = &Window{Trigger: ByClearing, Results: len(results), results: results}
	for i, r := range results {
		if i == 0 || results[i-1].Index != r.Index {
			w.Tokens += s.between(r.Index, r.Index+1)
			w.EarlierSpans = append(w.EarlierSpans, Span{r.Index, 1})
		}
	}
	n := len(w.EarlierSpans) - 1
	w.Span, w.EarlierSpans = w.EarlierSpans[n], w.EarlierSpans[:n]
	return w, saved, held
}
