package adk

import (
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/cache"
	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// eventList is a list of events of the log as ADK's events. It never changes.
type eventList struct {
	len     int
	at      func(i int) *patch.Event
	all     iter.Seq2[int, *patch.Event]
	convert func(*patch.Event) *session.Event
}

func listOf(events []*patch.Event, convert func(*patch.Event) *session.Event) eventList {
	return eventList{len(events), func(i int) *patch.Event { return events[i] }, slices.All(events), convert}
}

func (l eventList) Len() int { return l.len }

// At returns the event with index i, or nil if there is none.
func (l eventList) At(i int) *session.Event {
	if i < 0 || i >= l.len {
		return nil
	}
	return l.convert(l.at(i))
}

func (l eventList) All() iter.Seq[*session.Event] {
	return func(yield func(*session.Event) bool) {
		for _, e := range l.all {
			if !yield(l.convert(e)) {
				return
			}
		}
	}
}

var _ session.Events = eventList{}

// selection is what a session shows that was got with a filter: the events that the
// filter chose, as long as they are visible, and all that was logged since.
type selection struct {
	chosen map[uint64]bool // by the seqs of the records that put them in
	since  uint64          // what has a higher seq was logged since
	events []*patch.Event
	view   fold.View // that events are of
}

// selectEvents selects those of the last n visible events whose time is not before t.
func selectEvents(v fold.View, n int, t time.Time) *selection {
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

// grow freezes what the session shows, whatever patches were logged, and adds records of its own. While a workflow's node
// runs, ADK inserts the node's input into the list of events at the index that was the end when the node began, so the list
// must not become shorter. A session shows other events only after an append, and a running node appends, so it is enough
// to look at the author of each append. Of an event that is shown shortened, the shortened copy is added. The lock is held.
func (s *Session) grow(records []patch.Record, after fold.View) {
	if s.frozen == nil {
		if list, ok := s.events().(eventList); ok {
			for _, e := range list.all {
				s.frozen = append(s.frozen, e)
			}
		}
	}
	for _, r := range records {
		shown := slices.ContainsFunc(s.frozen, func(e *patch.Event) bool {
			o, _ := e.Origin()
			return e.ID() == r.ID() || o.ID == r.ID()
		})
		if r.Event != nil && !shown {
			s.frozen = append(s.frozen, inPlaceOf(r, after))
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

// decoder makes ADK's events of the events of a log, and identifies the service that made a session.
type decoder struct {
	logger  *slog.Logger
	decoded cache.Cache[*patch.Event, *session.Event] // the decoded form, which only this decoder holds; callers get copies
	warned  cache.Cache[*patch.Event, bool]           // events that were logged as unreadable
}

// maxDecodedBytes is about how much memory a generation of decoded events takes.
const maxDecodedBytes = 32 << 20

// event returns an event of the log as ADK knows it, the caller's own.
func (d *decoder) event(p *patch.Event) *session.Event {
	e, ok := d.decoded.Get(p)
	if !ok {
		var err error
		if e, err = SessionEvent(p); err != nil {
			if _, warned := d.warned.Get(p); !warned {
				d.warned.Put(p, true, 1)
				d.logger.Warn("patchlog: an event of the log has fields that ADK cannot read", "error", err)
			}
		}
		d.decoded.Put(p, e, 2*p.Footprint())
	}
	return convert.CopyEvent(e)
}

// ownEvents are the events of the log that a session has given, as ADK's events. It gives the same one each time.
type ownEvents struct {
	decoder *decoder

	mu    sync.Mutex
	given map[*patch.Event]*session.Event
}

func (o *ownEvents) event(p *patch.Event) *session.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, ok := o.given[p]
	if !ok {
		e = o.decoder.event(p)
		o.given[p] = e
	}
	return e
}

// keep forgets the events that a view does not have, once they are many.
func (o *ownEvents) keep(v fold.View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.given) <= 2*v.Len()+100 {
		return
	}
	kept := make(map[*patch.Event]*session.Event, v.Len())
	for _, p := range v.Events() {
		if e, ok := o.given[p]; ok {
			kept[p] = e
		}
	}
	o.given = kept
}
