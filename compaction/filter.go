package compaction

import "github.com/patchlog-dev/patchlog/patch"

// FilterEventsForLLM returns what a model should see of a foreign log that holds
// compaction records (see [IsCompactionEvent]): each record becomes an event with the
// record's compacted content, at the place where the first event in its range stood, or
// its own if there is none; the events before it whose times lie in its range are left
// out. A record whose range lies within a later record's is left out too. Events and
// their order are else as they were; a log without records comes back as it is.
//
// It is for logs that patchlog has not folded: in a [fold.View] a patch has put the
// summary in the events' place already, whatever their times are.
func FilterEventsForLLM(events []*patch.Event) []*patch.Event {
	type record struct {
		at int
		c  patch.EventCompaction
	}
	var records []record
	for i, e := range events {
		if c, ok := CompactionOf(e); ok && !c.CompactedContent.IsZero() {
			records = append(records, record{i, c})
		}
	}
	if len(records) == 0 {
		return events
	}
	covered := make([]bool, len(events))
	shown := map[int][]*patch.Event{} // before the event with this index
	for n := len(records) - 1; n >= 0; n-- {
		r := records[n]
		if covered[r.at] {
			continue
		}
		place := r.at
		for i := r.at - 1; i >= 0; i-- {
			if other, ok := CompactionOf(events[i]); ok {
				covered[i] = covered[i] || r.c.StartTimestamp <= other.StartTimestamp && other.EndTimestamp <= r.c.EndTimestamp
			} else if !covered[i] && InCompactedRange(events[i], r.c) {
				covered[i] = true
				place = i
			}
		}
		covered[r.at] = true
		if e := compactedEvent(events[r.at], r.c.CompactedContent); e != nil {
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

// compactedEvent is a record as an event that a model sees; nil if it cannot be one.
func compactedEvent(record *patch.Event, content patch.Content) *patch.Event {
	e, err := patch.NewEvent(patch.Fields{
		ID: record.ID(), InvocationID: record.InvocationID(), Author: record.Author(), Branch: record.Branch(),
		IsolationScope: record.IsolationScope(), Timestamp: record.Timestamp(), Content: content,
	})
	if err != nil {
		return nil
	}
	return e
}
