package adkrecord

import (
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/ties"
	"github.com/patchlog-dev/patchlog/patch"
)

// FilterEventsForLLM returns what a model should see of a foreign log that holds
// compaction records (see [IsCompactionEvent]): each record becomes an event of role user
// with the texts of its compacted content and nothing else, at the place where the first
// event that it stands for stood, or its own if there is none. What it stands for is left
// out: the events before it whose times lie in its range and that it does not exclude. A
// record whose range lies within a later record's is left out too, and so is nil. A call and its responses are
// left out together or not at all; a record without text stands for nothing. Events and
// their order are else as they were; a log without records comes back as it is.
//
// It is for logs that patchlog has not folded: in a [fold.View] a patch has put the
// summary in the events' place already, whatever their times are.
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
	shown := map[int][]*patch.Event{} // before the event with this index
	for _, r := range slices.Backward(claims) {
		if covered[r.at] {
			continue
		}
		covered[r.at] = true
		if r.text == "" {
			continue
		}
		goes := slices.Clone(covered)
		for i, e := range events[:r.at] {
			goes[i] = goes[i] || r.c.Covers(e) && !IsCompactionEvent(e) || summaries.Supersedes(r.c.EventCompaction, e)
		}
		for _, together := range tied {
			if slices.ContainsFunc(together, func(i int) bool { return !goes[i] }) {
				for _, i := range together {
					goes[i] = covered[i]
				}
			}
		}
		place := r.at
		for i := r.at - 1; i >= 0; i-- {
			if goes[i] && !covered[i] && !IsCompactionEvent(events[i]) {
				place = i
			}
		}
		covered = goes
		if e := compactedEvent(events[r.at], r.text); e != nil {
			shown[place] = append([]*patch.Event{e}, shown[place]...)
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

// tiedEvents returns the indices of events that calls and their responses tie together.
func tiedEvents(events []*patch.Event) [][]int {
	var records []patch.Record
	for i, e := range events {
		records = append(records, patch.Record{Seq: uint64(i) + 1, Event: e})
	}
	v, err := fold.New("", nil).Apply(records...)
	if err != nil {
		return nil // events alone always fold
	}
	byLast := map[int32][]int{}
	for i, last := range ties.Last(len(events), v.Calls()) {
		byLast[last] = append(byLast[last], i)
	}
	var tied [][]int
	for _, together := range byLast {
		if len(together) > 1 {
			tied = append(tied, together)
		}
	}
	return tied
}

// compactedEvent is a record as an event that a model sees; nil if it cannot be one.
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
