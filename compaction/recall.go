package compaction

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Recall plans how calls that summaries hide come back into sight when they are answered:
// a model's API refuses a response without its call, and a resume looks for it. answers
// are events that are about to be appended to the view's session; those that the view
// shows are looked at in any case. The patches are to be applied to the view in one go, in
// their order. There are none if every response has its call in sight, or if no summary
// hides the call: what was cut by hand stays cut.
//
// For each event whose calls are answered, a patch puts a copy of it directly before the
// answer, or at the end where the answer is still to come. The copy has a new id and only
// the calls that are answered, with no text and no change of the state, so that nothing is
// said twice and the state stays. The summaries stay too. Reverting what hid the call would
// bring back all that went with it, and of every summary that this one was merged into.
//
// It reads the log twice, and nothing if there is no call to look for.
func Recall[K comparable](ctx context.Context, log Log[K], key K, on fold.View, answers ...*patch.Event) ([]*patch.PatchEvent, error) {
	wanted, err := unanswerable(on, answers)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	candidates := map[callName][]askedIn{}
	for r, err := range log.RawEvents(ctx, key, 1) {
		if err != nil {
			return nil, err
		}
		for _, e := range eventsOf(r) {
			for p := range e.FunctionParts() {
				name := nameOf(p)
				if _, asked := wanted[name]; asked && !p.Response && r.Seq <= on.Seq() {
					candidates[name] = append(candidates[name], askedIn{e, r.Seq})
				}
			}
		}
	}
	copies := map[string]*copied{} // by the id of the event
	for name, at := range wanted {
		for _, c := range slices.Backward(candidates[name]) {
			hidden, err := hiddenBySummary(ctx, log, key, on, c)
			if err != nil {
				return nil, err
			}
			if !hidden {
				continue
			}
			known := copies[c.event.ID()]
			if known == nil {
				known = &copied{event: c.event, seq: c.seq, at: at}
				copies[c.event.ID()] = known
			}
			known.at = min(known.at, at)
			known.calls = append(known.calls, name)
			break
		}
	}
	return recalling(on, copies)
}

// callName is what a call and its responses have in common.
type callName struct {
	id, name string // the name only where there is no id
}

func nameOf(p patch.FunctionPart) callName {
	if p.ID != "" {
		return callName{id: p.ID}
	}
	return callName{name: p.Name}
}

// unanswerable returns the calls of which a response is in sight, or about to be, and no
// call, with the place of the first such response.
func unanswerable(v fold.View, answers []*patch.Event) (map[callName]int, error) {
	then := v
	for _, e := range answers {
		var err error
		if then, err = then.Apply(patch.Record{Seq: then.Seq() + 1, Event: e}); err != nil {
			return nil, err
		}
	}
	unpaired := unpairedResponses(then)
	wanted := make(map[callName]int, len(unpaired))
	for _, i := range slices.Sorted(maps.Keys(unpaired)) {
		for _, name := range unpaired[i] {
			if _, known := wanted[name]; !known {
				wanted[name] = min(i, v.Len())
			}
		}
	}
	return wanted, nil
}

// unpairedResponses returns what the responses that answer no visible call are named by,
// by the indices of their events.
func unpairedResponses(v fold.View) map[int][]callName {
	type answer struct {
		index int
		call  callName
	}
	paired := map[answer]bool{}
	for _, c := range v.Calls() {
		for _, r := range c.Responses {
			paired[answer{r, nameOf(patch.FunctionPart{ID: c.ID, Name: c.Name})}] = true
		}
	}
	unpaired := map[int][]callName{}
	for i, e := range v.Events() {
		for p := range e.FunctionParts() {
			if name := nameOf(p); p.Response && !paired[answer{i, name}] {
				unpaired[i] = append(unpaired[i], name)
			}
		}
	}
	return unpaired
}

func eventsOf(r patch.Record) []*patch.Event {
	if r.Event != nil {
		return []*patch.Event{r.Event}
	}
	return r.Patch.NewEvents()
}

// askedIn is an event with a call, and the record that it came with.
type askedIn struct {
	event *patch.Event
	seq   uint64
}

// hiddenBySummary reports whether a visible summary stands for an event: compaction took
// it out, or took out the summary that did, and so on.
func hiddenBySummary[K comparable](ctx context.Context, log Log[K], key K, on fold.View, asked askedIn) (bool, error) {
	v, err := log.ViewAt(ctx, key, asked.seq)
	if err != nil {
		return false, err
	}
	// What stood for the event, the event first. Of these at most one is visible.
	stood := []string{asked.event.ID()}
	byPatch := map[string]string{} // the summaries for its group that patches put in
	for r, err := range log.RawEvents(ctx, key, asked.seq+1) {
		if err != nil {
			return false, err
		}
		if r.Seq > on.Seq() {
			break
		}
		before := v
		if v, err = v.Apply(r); err != nil {
			return false, err
		}
		if r.Patch == nil {
			continue
		}
		for _, e := range r.Patch.NewEvents() {
			if groupOf(e) == groupOf(asked.event) && (r.Patch.Type() == patch.Summarise || e.IsSummary()) {
				byPatch[r.ID()] = e.ID()
			}
		}
		if n := visibleOf(v, stood); n >= 0 {
			stood = stood[:n+1]
			continue
		}
		if visibleOf(before, stood) != len(stood)-1 {
			continue
		}
		summary, summarised := byPatch[r.ID()]
		if !summarised {
			summary, summarised = byPatch[partOf(r.Patch)]
		}
		if summarised {
			stood = append(stood, summary)
		}
	}
	n := visibleOf(v, stood)
	return n > 0, nil
}

// visibleOf returns the index of the last of some ids whose event is visible, or -1.
func visibleOf(v fold.View, ids []string) int {
	last := -1
	for _, e := range v.Events() {
		last = max(last, slices.Index(ids, e.ID()))
	}
	return last
}

// copied is an event of which a copy comes back.
type copied struct {
	event *patch.Event
	seq   uint64
	at    int // the visible index of the first answer
	calls []callName
}

// recalling returns the patches that put the copies in, from the end of the log, so that
// none shifts the next.
func recalling(on fold.View, copies map[string]*copied) ([]*patch.PatchEvent, error) {
	var all []*copied
	for _, c := range copies {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *copied) int {
		if a.at != b.at {
			return b.at - a.at
		}
		return int(a.seq) - int(b.seq)
	})
	var patches []*patch.PatchEvent
	for len(all) > 0 {
		at := all[0].at
		var here []*patch.Event
		for len(all) > 0 && all[0].at == at {
			e, err := onlyCalls(all[0].event, all[0].calls)
			if err != nil {
				return nil, fmt.Errorf("event %q, which is to come back: %w", all[0].event.ID(), err)
			}
			here, all = append(here, e), all[1:]
		}
		patches = append(patches, patch.NewSplice(at, 0, here...).WithState(patch.Keep).WithAuthor(author).WithBase(on.PatchSeq()))
	}
	return patches, nil
}

// onlyCalls returns a copy of an event, under a new id, that has nothing but some of its
// calls.
func onlyCalls(e *patch.Event, calls []callName) (*patch.Event, error) {
	text, err := e.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var fields, content map[string]json.RawMessage
	var parts, kept []json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(fields["content"], &content); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content["parts"], &parts); err != nil {
		return nil, err
	}
	var longRunning []string
	for p := range e.FunctionParts() {
		if p.Response || !slices.Contains(calls, nameOf(p)) {
			continue
		}
		kept = append(kept, parts[p.Index])
		if p.ID != "" && e.IsLongRunning(p.ID) {
			longRunning = append(longRunning, p.ID)
		}
	}
	if content["parts"], err = json.Marshal(kept); err != nil {
		return nil, err
	}
	own := map[string]any{
		"id": uuid.NewString(), "content": content, "customMetadata": map[string]any{lineageKey: map[string]any{"recalled": e.ID()}},
	}
	if len(longRunning) > 0 {
		own["longRunningToolIds"] = longRunning
	}
	for _, name := range []string{"invocationId", "author", "branch", "isolationScope", "timestamp"} {
		if v, there := fields[name]; there {
			own[name] = v
		}
	}
	if text, err = json.Marshal(own); err != nil {
		return nil, err
	}
	return patch.ParseEvent(text)
}
