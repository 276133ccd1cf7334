package adkrecord

import (
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/ties"
	"github.com/patchlog-dev/patchlog/patch"
)

// FilterEventsForLLM returns the events that a model should see of a log with ADK's compaction records (see
// [IsCompactionEvent]). Each record becomes an event of role user with only the text of its compacted content. This
// event takes the position of the first event that the record covers. If the record covers no event, its position does
// not change.
//
// A record covers the events before it whose times are in its range, except those that it excludes. Covered events are
// left out. A call and its responses are either all left out or all kept. A record whose range is within a later
// record's range is also left out. A record without text is left out and covers nothing. Nil events are left out.
//
// All other events stay unchanged, in their order. Use FilterEventsForLLM only for logs that patchlog has not folded.
// In a [fold.View], patches have already replaced the events with their summary.
func FilterEventsForLLM(events []*patch.Event) []*patch.Event {
	if slices.Contains(events, nil) {
		events = slices.DeleteFunc(slices.Clone(events), func(e *patch.Event) bool { return e == nil })
	}
	type claim struct {
		at   int
		c    summaries.Claim
		text string
	}
	var claims []claim
	for i, e := range events {
		if c, ok := summaries.ClaimOf(e); ok {
			claims = append(claims, claim{i, c, summaries.Text(c.CompactedContent)})
		}
	}
	if len(claims) == 0 {
		return events
	}
	tied := tiedEvents(events)
	covered := make([]bool, len(events))
	shown := map[int][]*patch.Event{} // events that replace records, by the index of the event that they precede
	for _, r := range slices.Backward(claims) {
		if covered[r.at] {
			continue
		}
		covered[r.at] = true
		if r.text == "" {
			continue
		}
		removed := slices.Clone(covered)
		for i, e := range events[:r.at] {
			removed[i] = removed[i] || r.c.Covers(e) && !IsCompactionEvent(e) || summaries.Supersedes(r.c.EventCompaction, e)
		}
		for _, group := range tied {
			if slices.ContainsFunc(group, func(i int) bool { return !removed[i] }) {
				for _, i := range group {
					removed[i] = covered[i]
				}
			}
		}
		position := r.at
		for i := r.at - 1; i >= 0; i-- {
			if removed[i] && !covered[i] && !IsCompactionEvent(events[i]) {
				position = i
			}
		}
		covered = removed
		if e := compactedEvent(events[r.at], r.text); e != nil {
			shown[position] = append([]*patch.Event{e}, shown[position]...)
		}
	}
	var out []*patch.Event
	for i, e := range events {
		out = append(out, shown[i]...)
		if !covered[i] {
			out = append(out, e)
		}
	}
	return out
}

// tiedEvents returns groups of event indices. The events of a group are tied by calls and responses.
func tiedEvents(events []*patch.Event) [][]int {
	var records []patch.Record
	for i, e := range events {
		records = append(records, patch.Record{Seq: uint64(i) + 1, Event: e})
	}
	v, err := fold.New("", nil).Apply(records...)
	if err != nil {
		return nil // cannot happen, because a log of events can always be folded
	}
	byLast := map[int32][]int{}
	for i, last := range ties.LastConnected(len(events), v.Calls()) {
		byLast[last] = append(byLast[last], i)
	}
	var tied [][]int
	for _, group := range byLast {
		if len(group) > 1 {
			tied = append(tied, group)
		}
	}
	return tied
}

// compactedEvent returns the event that shows a record to a model. If the record has no text, it returns nil.
func compactedEvent(r *patch.Event, text string) *patch.Event {
	e, err := patch.NewEvent(patch.Fields{
		ID: r.ID(), InvocationID: r.InvocationID(), Author: r.Author(), Branch: r.Branch(),
		IsolationScope: r.IsolationScope(), Timestamp: r.Timestamp(), Content: summaries.Content(text),
	})
	if err != nil {
		return nil
	}
	return e
}
