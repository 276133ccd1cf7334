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

// eventList presents events of the log as ADK events. It is immutable.
type eventList struct {
	len     int
	at      func(i int) *patch.Event
	all     iter.Seq2[int, *patch.Event]
	convert func(*patch.Event) *session.Event
}

func newEventList(events []*patch.Event, convert func(*patch.Event) *session.Event) eventList {
	return eventList{len(events), func(i int) *patch.Event { return events[i] }, slices.All(events), convert}
}

func (l eventList) Len() int { return l.len }

// At returns the event at index i, or nil if i is out of range.
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

// selection contains the events that a filtered session shows: the visible events that matched the filter, and all
// events logged after the Get.
type selection struct {
	matched map[uint64]bool // the matching events, by the seq of the record that added the event
	seq     uint64          // seq of the view at the time of the Get; records with a greater seq were logged later
	events  []*patch.Event
	view    fold.View // the view from which events was computed
}

// selectEvents selects from the last n visible events those whose time is not before t.
func selectEvents(v fold.View, n int, t time.Time) *selection {
	s := &selection{matched: map[uint64]bool{}, seq: v.Seq(), view: v}
	for i := max(v.Len()-n, 0); i < v.Len(); i++ {
		if e := v.Entry(i); !e.Event.Timestamp().Before(t) {
			s.matched[e.Seq] = true
			s.events = append(s.events, e.Event)
		}
	}
	return s
}

func (s *selection) advance(v fold.View) {
	from := s.view.Len()
	if v.PatchSeq() != s.view.PatchSeq() {
		from, s.events = 0, nil
	}
	for i := from; i < v.Len(); i++ {
		if e := v.Entry(i); e.Seq > s.seq || s.matched[e.Seq] {
			s.events = append(s.events, e.Event)
		}
	}
	s.view = v
}

// growFrozen freezes the session's list of events and appends the given events to the list. While a workflow node
// runs, ADK inserts the node's input at the index where the list ended when the node began. So the list must not
// become shorter.
//
// The list of a session changes only at an append, and a running node appends events. So the caller checks each
// appended event to find out whether a node is running. If the log shortened an event, growFrozen appends the
// shortened copy. The caller holds the lock.
func (s *Session) growFrozen(records []patch.Record, after fold.View) {
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
			s.frozen = append(s.frozen, shownEvent(r, after))
		}
	}
}

// shownEvent returns the event that a view shows for a record that was just appended. This is the record's
// event, or its replacement.
func shownEvent(r patch.Record, v fold.View) *patch.Event {
	for i := v.Len() - 1; i >= 0 && v.Entry(i).Seq > r.Seq; i-- {
		if o, ok := v.At(i).Origin(); ok && o.ID == r.ID() {
			return v.At(i)
		}
	}
	return r.Event
}

// inNode reports whether an event comes from a workflow node, or from an agent with its own branch or isolation
// scope. The runner also creates a node for the agent that it runs. The path of that node is only the agent's name,
// so inNode reports false for it.
func inNode(e *session.Event) bool {
	return e.Branch != "" || e.IsolationScope != "" || e.NodeInfo != nil && strings.ContainsAny(e.NodeInfo.Path, "/@")
}

// decoder converts events of the log to ADK events. Each service has its own decoder, which also identifies the
// sessions of the service.
type decoder struct {
	logger  *slog.Logger
	decoded cache.Cache[*patch.Event, *session.Event] // decoded events; callers get copies of them
	warned  cache.Cache[*patch.Event, bool]           // events for which the decoder has logged a warning about unreadable fields
}

// maxDecodedBytes is the approximate memory of one generation of the cache of decoded events.
const maxDecodedBytes = 32 << 20

// event converts an event of the log to an ADK event. The result is a copy that the caller owns.
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

// returnedEvents contains the ADK events that a session has returned, so that it returns the same pointer for an event
// each time.
type returnedEvents struct {
	decoder *decoder

	mu      sync.Mutex
	byEvent map[*patch.Event]*session.Event
}

func (o *returnedEvents) event(p *patch.Event) *session.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, ok := o.byEvent[p]
	if !ok {
		e = o.decoder.event(p)
		o.byEvent[p] = e
	}
	return e
}

// prune removes the events that are not in v, if there are many such events.
func (o *returnedEvents) prune(v fold.View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.byEvent) <= 2*v.Len()+100 {
		return
	}
	kept := make(map[*patch.Event]*session.Event, v.Len())
	for _, p := range v.Events() {
		if e, ok := o.byEvent[p]; ok {
			kept[p] = e
		}
	}
	o.byEvent = kept
}
