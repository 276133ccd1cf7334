package adk

import (
	"slices"
	"strings"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// grow holds what the session shows, whatever patches were logged, and adds records of its
// own. For the time in which a workflow's node for a single turn runs, ADK puts what the
// node was asked into the list of events at the place that was the end when it began: were
// the list to shrink before that, the node would lose the thread. Nodes append events
// while they run, and what a session shows changes only with an append, so it is enough to
// look at who appends. Of a record whose results are shown in short in the view after it, what
// stands in its place is added. The lock is held.
func (s *Session) grow(records []patch.Record, after fold.View) {
	if s.held == nil {
		switch shown := s.events().(type) {
		case selected:
			s.held = slices.Clone(shown.events)
		case visible:
			s.held = make([]*patch.Event, 0, shown.Len()+1)
			for _, e := range shown.view.Events() {
				s.held = append(s.held, e)
			}
		}
	}
	for _, r := range records {
		known := slices.ContainsFunc(s.held, func(e *patch.Event) bool {
			o, _ := e.Origin()
			return e.ID() == r.ID() || o.ID == r.ID()
		})
		if r.Event != nil && !known {
			s.held = append(s.held, inPlaceOf(r, after))
		}
	}
}

// inPlaceOf returns what a view shows of a record's event that was just appended: the event, or
// what stands in its place.
func inPlaceOf(r patch.Record, v fold.View) *patch.Event {
	for i := v.Len() - 1; i >= 0 && v.Entry(i).Seq > r.Seq; i-- {
		if o, ok := v.At(i).Origin(); ok && o.ID == r.ID() {
			return v.At(i)
		}
	}
	return r.Event
}

// inNode reports whether an event comes from inside a workflow's node, or of an agent that
// has a branch or a scope of its own. The one node that the runner makes of the agent that
// it runs is none: its path is the agent's name alone.
func inNode(e *session.Event) bool {
	return e.Branch != "" || e.IsolationScope != "" || e.NodeInfo != nil && strings.ContainsAny(e.NodeInfo.Path, "/@")
}
