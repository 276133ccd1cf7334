package compaction

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// RestoreCalls returns patches that make hidden calls visible again when their responses arrive. A model's API refuses
// a response without its call, and a resumed run looks for the call. The arguments answers are the events that are
// about to be appended to the view's session. RestoreCalls also restores the calls of responses that are already
// visible. Only calls that a summary hides are restored, so a call that a user removed stays hidden.
//
// For each event with answered calls, a patch inserts a copy directly after the summary that covers the event. There
// the copy follows a message in role user, as a model's API requires for a call. After the copy, the patch inserts
// copies of earlier responses to the calls, such as placeholders. Each copy has a new id and contains only the calls or
// responses, without text or state changes. The copy keeps the fields that name the caller and the destination of an
// answer. The summaries stay, because reverting them would show everything that they cover.
//
// Apply the patches to the view in one call, in the returned order. RestoreCalls reads the log only if a call is
// missing.
func RestoreCalls[K comparable](ctx context.Context, log Log[K], key K, on fold.View, answers ...*patch.Event) ([]*patch.PatchEvent, error) {
	wanted, err := missingCalls(on, answers)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	h := history{view: on, records: func(from uint64) recordSeq { return log.RawEvents(ctx, key, from) }}
	parts := map[callName][]loggedPart{} // calls and responses of each name, in log order
	origins := map[string]string{}       // key: event id; value: the id of the event that it replaces
	for r, err := range h.records(1) {
		if err != nil {
			return nil, err
		}
		if r.Seq > on.Seq() {
			break
		}
		for i, e := range r.Events() {
			if o, ok := e.Origin(); ok {
				origins[e.ID()] = o.ID
			}
			for p := range e.FunctionParts() {
				if name := callNameOf(p); wanted[name] {
					parts[name] = append(parts[name], loggedPart{e, r.Seq, i, p.Response})
				}
			}
		}
	}
	places, err := on.Places()
	if err != nil {
		return nil, err
	}
	copies := map[string]*eventCopy{} // key: id of the original event
	for name := range wanted {
		hidden, summary, err := h.hiddenCall(places, parts[name])
		if err != nil {
			return nil, err
		}
		for _, p := range hidden {
			known := copies[p.event.ID()]
			if known == nil {
				known = &eventCopy{loggedPart: p, visibleIndex: summary + 1, originalID: p.event.ID()}
				for n := 0; n < len(origins) && origins[known.originalID] != ""; n++ { // the loop is limited because origins may form a cycle
					known.originalID = origins[known.originalID]
				}
				copies[p.event.ID()] = known
			}
			known.names = append(known.names, name)
		}
	}
	return insertCopies(on, copies)
}

// callName identifies a call and its responses.
type callName struct {
	id, name string // name is set only if there is no id
}

func callNameOf(p patch.FunctionPart) callName {
	if p.ID != "" {
		return callName{id: p.ID}
	}
	return callName{name: p.Name}
}

// missingCalls returns the calls that are not visible but have a response. The response is visible or in answers.
func missingCalls(v fold.View, answers []*patch.Event) (map[callName]bool, error) {
	after := v
	for _, e := range answers {
		var err error
		if after, err = after.Apply(patch.Record{Seq: after.Seq() + 1, Event: e}); err != nil {
			return nil, err
		}
	}
	wanted := map[callName]bool{}
	for _, names := range unpairedResponses(after) {
		for _, name := range names {
			wanted[name] = true
		}
	}
	return wanted, nil
}

// unpairedResponses finds the visible responses whose call is not visible. It returns the names of these calls by the
// visible index of the response's event.
func unpairedResponses(v fold.View) map[int][]callName {
	type answer struct {
		index int
		call  callName
	}
	paired := map[answer]bool{}
	for _, c := range v.Calls() {
		for _, r := range c.Responses {
			paired[answer{r, callNameOf(patch.FunctionPart{ID: c.ID, Name: c.Name})}] = true
		}
	}
	unpaired := map[int][]callName{}
	for i, e := range v.Events() {
		for p := range e.FunctionParts() {
			if name := callNameOf(p); p.Response && !paired[answer{i, name}] {
				unpaired[i] = append(unpaired[i], name)
			}
		}
	}
	return unpaired
}

// loggedPart is a call or a response in the log.
type loggedPart struct {
	event    *patch.Event
	seq      uint64
	index    int // index of the event in its record
	response bool
}

// hiddenCall finds the newest call that a summary hides. The argument parts has all calls and responses with the same
// callName. The results are the call with its hidden responses, and the visible index of the call's summary.
func (h history) hiddenCall(places *fold.Places, parts []loggedPart) (hidden []loggedPart, summary int, err error) {
	for i, p := range slices.Backward(parts) {
		if p.response {
			continue
		}
		summary, err = h.summaryOf(places, p)
		if err != nil {
			return nil, -1, err
		}
		if summary < 0 {
			continue
		}
		hidden = append(hidden, p)
		for _, r := range parts[i+1:] {
			if !r.response {
				break
			}
			by, err := h.summaryOf(places, r)
			if err != nil {
				return nil, -1, err
			}
			if by >= 0 {
				hidden = append(hidden, r)
			}
		}
		return hidden, summary, nil
	}
	return nil, -1, nil
}

// summaryOf returns the index of the visible summary that represents a hidden event, directly or through other
// summaries. It returns -1 if there is none.
func (h history) summaryOf(places *fold.Places, of loggedPart) (int, error) {
	for seq, index := of.seq, of.index; ; {
		place, ok := places.Of(seq, index)
		switch {
		case !ok || place.Index >= 0 && seq == of.seq:
			return -1, nil
		case place.Index >= 0:
			return place.Index, nil
		}
		by, err := h.record(place.HiddenBySeq)
		if err != nil || by.Patch == nil {
			return -1, err
		}
		if seq, index, err = h.insertedSummary(by, groupOf(of.event)); err != nil || index < 0 {
			return -1, err
		}
	}
}

// insertedSummary returns the summary of the given branch and scope that a patch, or another patch of the same group,
// has inserted. If there is none, index is -1.
func (h history) insertedSummary(by patch.Record, key group) (seq uint64, index int, err error) {
	find := func(r patch.Record) int {
		return slices.IndexFunc(r.Events(), func(e *patch.Event) bool {
			return groupOf(e) == key && (r.Patch.Type() == patch.Summarise || e.IsSummary())
		})
	}
	if index = find(by); index >= 0 || by.Patch.Group() == "" {
		return by.Seq, index, nil
	}
	first := by.Seq // all patches of a group are logged together
	for first > 1 {
		r, err := h.record(first - 1)
		if err != nil {
			return 0, -1, err
		}
		if r.Patch == nil || r.Patch.Group() != by.Patch.Group() {
			break
		}
		first--
	}
	for r, err := range h.records(first) {
		if err != nil {
			return 0, -1, err
		}
		if r.Patch == nil || r.Patch.Group() != by.Patch.Group() {
			break
		}
		if index = find(r); index >= 0 {
			return r.Seq, index, nil
		}
	}
	return 0, -1, nil
}

// eventCopy is the copy of an event that is about to be inserted.
type eventCopy struct {
	loggedPart
	visibleIndex int    // visible index of the copy, directly after the summary
	originalID   string // id of the event in its logged form
	names        []callName
}

// insertCopies returns the patches that insert the copies. The patch with the last position comes first, so that no
// patch shifts the indices of a later patch.
func insertCopies(on fold.View, copies map[string]*eventCopy) ([]*patch.PatchEvent, error) {
	var all []*eventCopy
	for _, c := range copies {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *eventCopy) int {
		if a.visibleIndex != b.visibleIndex {
			return b.visibleIndex - a.visibleIndex
		}
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.index, b.index))
	})
	var patches []*patch.PatchEvent
	for len(all) > 0 {
		position := all[0].visibleIndex
		var inserted []*patch.Event
		for len(all) > 0 && all[0].visibleIndex == position {
			e, err := all[0].build()
			if err != nil {
				return nil, fmt.Errorf("copy event %q to restore it: %w", all[0].event.ID(), err)
			}
			inserted, all = append(inserted, e), all[1:]
		}
		patches = append(patches, patch.NewSplice(position, 0, inserted...).WithState(patch.Keep).WithBase(on.PatchSeq()))
	}
	return groupPatches(patches, patch.CompactionAuthor, uuid.NewString), nil // one group, because a call and its response may be inserted at different positions
}

// build returns a copy of the event that contains only the calls or responses named in c.names.
func (c *eventCopy) build() (*patch.Event, error) {
	var indices []int
	for p := range c.event.FunctionParts() {
		if p.Response == c.response && slices.Contains(c.names, callNameOf(p)) {
			indices = append(indices, p.Index)
		}
	}
	return withParts(c.event, indices, map[string]any{"recalled": c.originalID})
}

// withParts returns a copy of an event with a new id and only some parts of its content. The copy keeps only the fields
// that identify the parts' author and the destination of an answer, such as a workflow node, or metadata about the task
// of a remote agent. If own is not nil, it becomes part of the metadata, together with the new id.
func withParts(e *patch.Event, indices []int, own map[string]any) (*patch.Event, error) {
	fields, err := fieldsOf(e)
	if err != nil {
		return nil, err
	}
	content, parts, err := contentOf(e)
	if err != nil {
		return nil, err
	}
	kept := make([]json.RawMessage, len(indices))
	for n, i := range indices {
		kept[n] = parts[i]
	}
	if content["parts"], err = json.Marshal(kept); err != nil {
		return nil, err
	}
	id := uuid.NewString()
	members := map[string]any{"id": id, "content": content}
	for _, name := range []string{"invocationId", "author", "branch", "isolationScope", "timestamp", "nodeInfo", "requestedInput", "customMetadata"} {
		if v, there := fields[name]; there {
			members[name] = v
		}
	}
	var longRunning []string
	for p := range e.FunctionParts() {
		if !p.Response && p.ID != "" && slices.Contains(indices, p.Index) && records.IsLongRunning(e, p.ID) {
			longRunning = append(longRunning, p.ID)
		}
	}
	if len(longRunning) > 0 {
		members["longRunningToolIds"] = longRunning
	}
	if own != nil {
		own["as"] = id
		metadata := map[string]json.RawMessage{}
		if err := e.Decode("customMetadata", &metadata); err != nil {
			return nil, err
		}
		if metadata[patch.OwnMetadata], err = json.Marshal(own); err != nil {
			return nil, err
		}
		members["customMetadata"] = metadata
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return patch.ParseEvent(text)
}

// WithoutRestored returns a history (see [fold.View.History]) without the copies made by [RestoreCalls] whose original
// event is also in the history. It reuses the slice, so the caller must not use the argument afterwards.
func WithoutRestored(history []fold.Entry) []fold.Entry {
	has := map[string]bool{}
	for _, e := range history {
		has[e.Event.ID()] = true
	}
	return slices.DeleteFunc(history, func(e fold.Entry) bool { return has[RestoredFrom(e.Event)] })
}

// RestoredFrom returns the id of the event whose copy e is. If [RestoreCalls] did not create e, it returns "".
func RestoredFrom(e *patch.Event) string {
	var own struct {
		Recalled string `json:"recalled"`
	}
	metadata, _ := e.Field("customMetadata")
	if !summaries.DecodeOwnMetadata(metadata, &own) {
		return ""
	}
	return own.Recalled
}
