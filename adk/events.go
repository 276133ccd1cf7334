package adk

import (
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// visible is the visible log of a view as ADK's events. It never changes; its events are
// [given]'s.
type visible struct {
	view  fold.View
	given *given
}

func (v visible) Len() int { return v.view.Len() }

// At returns the event with index i, or nil if there is none.
func (v visible) At(i int) *session.Event {
	if i < 0 || i >= v.view.Len() {
		return nil
	}
	return v.given.event(v.view.At(i))
}

func (v visible) All() iter.Seq[*session.Event] { return v.given.all(v.view.Events()) }

// selected are some of a visible log's events, otherwise as [visible].
type selected struct {
	events []*patch.Event
	given  *given
}

func (s selected) Len() int { return len(s.events) }

// At returns the event with index i, or nil if there is none.
func (s selected) At(i int) *session.Event {
	if i < 0 || i >= len(s.events) {
		return nil
	}
	return s.given.event(s.events[i])
}

func (s selected) All() iter.Seq[*session.Event] { return s.given.all(slices.All(s.events)) }

var _, _ session.Events = visible{}, selected{}

// selection is what a session shows that was got with a filter: the events that the
// filter chose, as long as they are visible, and all that was logged since.
type selection struct {
	chosen map[uint64]bool // by the seqs of the records that put them in
	since  uint64          // what has a higher seq was logged since
	events []*patch.Event
	view   fold.View // that events are of
}

// choose selects those of the last n visible events whose time is not before t.
func choose(v fold.View, n int, t time.Time) *selection {
	s := &selection{chosen: map[uint64]bool{}, since: v.Seq(), view: v}
	for i := max(v.Len()-n, 0); i < v.Len(); i++ {
		if e := v.Entry(i); !e.Event.Timestamp().Before(t) {
			s.chosen[e.Seq] = true
			s.events = append(s.events, e.Event)
		}
	}
	return s
}

// advance makes the selection one of a newer view.
func (s *selection) advance(v fold.View) {
	from := s.view.Len()
	if v.PatchSeq() != s.view.PatchSeq() {
		from, s.events = 0, nil
	}
	for i := from; i < v.Len(); i++ {
		if e := v.Entry(i); e.Seq > s.since || s.chosen[e.Seq] {
			s.events = append(s.events, e.Event)
		}
	}
	s.view = v
}

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
			s.held = choose(shown.view, shown.Len(), time.Time{}).events
		}
	}
	for _, r := range records {
		shown := slices.ContainsFunc(s.held, func(e *patch.Event) bool {
			o, _ := e.Origin()
			return e.ID() == r.ID() || o.ID == r.ID()
		})
		if r.Event != nil && !shown {
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

// given are the events that one session gives, each the reader's own. Where ADK has records of
// compaction, it gives the same event again when it is asked for it again: ADK reads a
// session's events twice to find out which of them a summary stands for, and compares them by
// their addresses. It is safe for use by any number of goroutines.
type given struct {
	decoded *decoded

	mu     sync.Mutex
	before map[*patch.Event]*session.Event // nil: each time another
}

func newGiven(d *decoded) *given {
	g := &given{decoded: d}
	if recordField >= 0 {
		g.before = map[*patch.Event]*session.Event{}
	}
	return g
}

// all gives events one after the other.
func (g *given) all(events iter.Seq2[int, *patch.Event]) iter.Seq[*session.Event] {
	return func(yield func(*session.Event) bool) {
		for _, e := range events {
			if !yield(g.event(e)) {
				return
			}
		}
	}
}

func (g *given) event(p *patch.Event) *session.Event {
	if g.before == nil {
		return g.decoded.event(p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.before[p]
	if e == nil {
		e = g.decoded.event(p)
		g.before[p] = e
	}
	return e
}

// decoded caches events of the log as ADK knows them, since decoding one takes about ten
// times as long as copying it. It is safe for use by any number of goroutines.
type decoded struct {
	logger *slog.Logger
	events cache[*patch.Event, *session.Event] // by bytes of JSON
}

// event returns an event of the log as ADK knows it, the caller's own.
func (d *decoded) event(p *patch.Event) *session.Event {
	if e, ok := d.events.get(p); ok {
		return copyEvent(e)
	}
	e, err := SessionEvent(p)
	if err != nil {
		d.logger.Warn("patchlog: an event of the log has fields that ADK cannot read", "error", err)
	}
	d.events.put(p, e, patch.Record{Event: p}.Size())
	return copyEvent(e)
}
