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

// ClearedResult is the text that replaces a cleared tool result.
const ClearedResult = "[old tool result cleared]"

// ClearToolResults returns patches that replace the results of all visible function responses, except the last
// keepLast, with [ClearedResult]. It uses no model. A negative keepLast counts as 0.
//
// Each patch is a splice that keeps the state and replaces one event by a copy. The copy has a new id, and otherwise
// the position and the fields of the old event. The responses keep their call ids and names. [fold.View.History] and
// later summaries use the original results.
//
// The following responses are not changed:
//
//   - short responses
//   - responses in pinned events
//   - responses that an open call may still need
//   - responses in an event that also has a response without a visible call, because no patch may insert such an event
//
// Apply the patches to v in one call, in the returned order. If there is nothing to clear, there are no patches. The
// error is nil unless an event cannot be rebuilt with its new content.
func ClearToolResults(v fold.View, keepLast int) ([]*patch.PatchEvent, error) {
	s := newPlanner(v, Run{})
	x := s.clearableEvents(Config{})
	results := s.results()
	results = results[:max(0, len(results)-max(0, keepLast))]
	return s.clearResults(slices.DeleteFunc(results, func(r result) bool { return x.excluded[r.Index] }))
}

// clearResults returns patches that clear the given results, which must be in log order. Each patch is a splice that
// replaces one event.
func (s *planner) clearResults(results []result) ([]*patch.PatchEvent, error) {
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

var clearedResponse = json.RawMessage(`{"result":"` + ClearedResult + `"}`)

// clearParts returns a copy of the event with a new id, in which the results in the given parts are cleared. It
// returns nil if none of these results can be cleared.
func clearParts(entry fold.Entry, parts []int) (*patch.Event, error) {
	_, allParts, err := contentOf(entry.Event)
	if err != nil {
		return nil, err
	}
	cleared := map[int]json.RawMessage{}
	for _, i := range parts {
		var part, response map[string]json.RawMessage
		if err := json.Unmarshal(allParts[i], &part); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(part["functionResponse"], &response); err != nil {
			return nil, err
		}
		if isShort(response["response"]) {
			continue
		}
		response["response"] = clearedResponse
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

// contentOf returns the members of the content of an event, and the parts in it.
func contentOf(e *patch.Event) (content map[string]json.RawMessage, parts []json.RawMessage, err error) {
	if err = e.Decode("content", &content); err == nil {
		err = json.Unmarshal(content["parts"], &parts)
	}
	return content, parts, err
}

func fieldsOf(e *patch.Event) (fields map[string]json.RawMessage, err error) {
	text, err := e.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	return fields, err
}

// isShort reports whether a result is at most as long as the text that would replace it.
func isShort(response []byte) bool { return len(response) <= len(clearedResponse) }

// result is a function response in a visible log.
type result struct {
	Index       int // visible index of the event
	Part        int // index of the part in the content of the event
	savedTokens int // estimated tokens that clearing saves; 0 if the result must not be cleared, such as an answer by the user
}

// results returns the responses to visible calls, in order.
func (s *planner) results() []result {
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
				r.savedTokens = max(0, utf8.RuneCount(response)-len(clearedResponse)) / patch.RunesPerToken
			}
			results = append(results, r)
		}
	}
	return results
}

// clearableEvents returns the selection of the events whose results may be cleared.
func (s *planner) clearableEvents(cfg Config) *selection {
	cfg.limits.WaitingCalls = math.MaxInt
	return s.selection(cfg, func(int) bool { return false })
}

// clearingWindow returns the window over the results that can be cleared, if clearing them saves at least
// [Config.ClearAfter] tokens. The result saved is the number of tokens that clearing saves. The result excluded is
// the number of tokens in events that must stay.
func (s *planner) clearingWindow(cfg Config) (w *Window, saved, excluded int) {
	if s.tokensWhere(s.isRaw) < cfg.ClearAfter { // check the cheap condition first
		return nil, 0, 0
	}
	results := s.results()
	old := max(0, len(results)-cfg.limits.ToolResults)
	for _, r := range results[old:] {
		excluded += r.savedTokens
	}
	results = slices.DeleteFunc(results[:old], func(r result) bool {
		saved += r.savedTokens
		return r.savedTokens == 0
	})
	if saved < cfg.ClearAfter {
		return nil, saved, excluded
	}
	x := s.clearableEvents(cfg)
	excluded += x.excludedTokens()
	results = slices.DeleteFunc(results, func(r result) bool {
		if x.excluded[r.Index] {
			saved -= r.savedTokens
		}
		return x.excluded[r.Index]
	})
	if saved < cfg.ClearAfter {
		return nil, saved, excluded
	}
	w = &Window{Trigger: ByClearing, Results: len(results), results: results}
	for i, r := range results {
		if i == 0 || results[i-1].Index != r.Index {
			w.Tokens += s.tokensBetween(r.Index, r.Index+1)
			w.EarlierSpans = append(w.EarlierSpans, Span{r.Index, 1})
		}
	}
	n := len(w.EarlierSpans) - 1
	w.Span, w.EarlierSpans = w.EarlierSpans[n], w.EarlierSpans[:n]
	return w, saved, excluded
}
