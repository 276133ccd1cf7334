package compaction

import (
	"cmp"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// recordSeq is a sequence of records in log order.
type recordSeq = iter.Seq2[patch.Record, error]

// history reads the records that a view was folded from.
type history struct {
	view    fold.View
	records func(from uint64) recordSeq
}

// record returns the record with the given seq, or a zero record if the log has none.
func (h history) record(seq uint64) (patch.Record, error) {
	for r, err := range h.records(seq) {
		if err == nil && r.Seq != seq {
			break
		}
		return r, err
	}
	return patch.Record{}, nil
}

// loggedEvent is an event in its logged form.
type loggedEvent struct {
	event    *patch.Event
	seq      uint64
	inserted bool // whether a patch inserted the event
}

func eventsOf(all []loggedEvent) []*patch.Event {
	events := make([]*patch.Event, len(all))
	for i, of := range all {
		events[i] = of.event
	}
	return events
}

// original returns the event that e was made from when results were cleared or shortened. The argument seq is the seq
// of e's record. If no patch of this log inserted e, e itself is the original, even if its metadata names another
// event.
func (h history) original(e *patch.Event, seq uint64) (loggedEvent, error) {
	for current := (loggedEvent{event: e, seq: seq}); ; {
		o, ok := current.event.Origin()
		if !ok || o.Seq >= current.seq {
			return current, nil
		}
		inserted, err := h.record(current.seq)
		if err != nil || inserted.Patch == nil {
			return current, err
		}
		from, err := h.record(o.Seq)
		if err != nil {
			return current, err
		}
		events := from.Events()
		i := slices.IndexFunc(events, func(e *patch.Event) bool { return e.ID() == o.ID })
		if i < 0 {
			return current, nil
		}
		current = loggedEvent{event: events[i], seq: o.Seq}
	}
}

// originals returns the logged forms of the events in a window whose results were cleared, by visible index.
func (h history) originals(s *planner, w *Window) (map[int]loggedEvent, error) {
	all := map[int]loggedEvent{}
	for _, g := range w.Groups {
		for _, i := range g.Indices {
			e := s.entries[i]
			if _, ok := e.Event.Origin(); !ok {
				continue
			}
			o, err := h.original(e.Event, e.Seq)
			if err != nil {
				return nil, err
			}
			all[i] = o
		}
	}
	return all, nil
}

// overlap returns the raw events of the last n invocations before a group of a window, in order. The summarizer gets
// these events for context. They belong to the group's branch and isolation scope, and only summaries hide them.
// Events that a user removed are omitted.
func (h history) overlap(g Group, n int) ([]loggedEvent, error) {
	hasSummary := false // whether a summary of the group's branch and scope precedes the group
	for _, e := range h.view.Entries() {
		hasSummary = hasSummary || e.Index < g.Indices[0] && e.Summary && groupOf(e.Event) == g.key()
	}
	if n == 0 || !hasSummary {
		return nil, nil
	}
	end := h.view.Entry(g.Indices[0]).Seq - 1
	// The range is extended backwards in growing steps, because the last invocations are a small part of a long log.
	for width := uint64(63); ; width *= 4 {
		from := uint64(1)
		if end > width {
			from = end - width
		}
		events, err := h.representedEvents(g, from, end)
		if err != nil {
			return nil, err
		}
		events = slices.DeleteFunc(events, func(of loggedEvent) bool { return of.inserted })
		if last, complete := lastInvocations(events, n); complete || from == 1 {
			return last, nil
		}
	}
}

// coveredEvents returns, in order, the raw events that the summaries of a group cover, in their logged form. The result
// others has the summaries that [Extractive] did not write, and the summaries that do not name the records that they
// cover.
func (h history) coveredEvents(g Group) (raw []*patch.Event, others []*patch.Event, err error) {
	from, to := uint64(0), uint64(0)
	for _, i := range g.Indices {
		e := h.view.At(i)
		l, ok := ParseLineage(e)
		if !ok || l.From == 0 || l.Model != extractiveModel {
			others = append(others, e)
		}
		if ok && l.From > 0 {
			from, to = min(cmp.Or(from, l.From), l.From), max(to, l.To)
		}
	}
	if from == 0 {
		return nil, others, nil
	}
	events, err := h.representedEvents(g, from, to)
	return eventsOf(events), others, err
}

// representedEvents returns, in order, the raw events of a group's branch and scope in the records [from, to] that only
// summaries hide. It omits copies of events, and events with a visible copy.
func (h history) representedEvents(g Group, from, to uint64) (events []loggedEvent, err error) {
	places, err := h.view.Places()
	if err != nil {
		return nil, err
	}
	replaced := map[uint64]bool{}
	for _, e := range h.view.Events() {
		if o, ok := e.Origin(); ok {
			replaced[o.Seq] = true
		}
	}
	for r, err := range h.records(from) {
		if err != nil {
			return nil, err
		}
		if r.Seq > to {
			break
		}
		for n, e := range r.Events() {
			if _, isCopy := e.Origin(); isCopy || e.IsSummary() || replaced[r.Seq] || groupOf(e) != g.key() {
				continue
			}
			if place, ok := places.Of(r.Seq, n); ok && place.Index < 0 && places.IsRepresented(r.Seq, n, e.Branch(), e.IsolationScope()) {
				events = append(events, loggedEvent{event: e, seq: r.Seq, inserted: r.Patch != nil})
			}
		}
	}
	return events, nil
}

// lastInvocations returns the events of the last n invocations. An event without invocation id belongs to the previous
// event's invocation. The result complete is true if there are older events too, so the first of the n invocations is
// complete.
func lastInvocations(events []loggedEvent, n int) (last []loggedEvent, complete bool) {
	seen := map[string]bool{}
	invocations := make([]string, len(events))
	id := ""
	for i, e := range events {
		if e.event.InvocationID() != "" {
			id = e.event.InvocationID()
		}
		invocations[i] = id
	}
	for i, id := range slices.Backward(invocations) {
		if !seen[id] && len(seen) == n {
			return events[i+1:], true
		}
		seen[id] = true
	}
	return events, false
}
