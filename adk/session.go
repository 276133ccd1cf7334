package adk

import (
	"iter"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Session is a session that a [Service] returned: a view of its log, and an overlay of state that is never stored. An
// append or a patch through the Session updates its view. It is safe for use by any number of goroutines.
type Session struct {
	key   store.Key
	given ownEvents

	mu        sync.RWMutex
	stored    storage.Session
	selection *selection     // nil: show all visible events
	history   session.Events // if not nil, shown until the session moves on

	// frozen, if not nil, is shown while nodes run: see grow.
	frozen []*patch.Event

	// hasAppended says that something was appended.
	hasAppended bool

	// overlay is state that this session shows but the log lacks: values from Set, and temp: keys. A patch.Value is
	// shown as its Any.
	overlay map[string]any

	// typed has values appended through this session that would come back with other Go types. Each is shown while its
	// key has the logged value.
	typed map[string]typedValue
}

type typedValue struct {
	value  any
	logged patch.Value
}

// ID returns the session's id.
func (s *Session) ID() string { return s.key.Session }

// AppName returns the name of the app.
func (s *Session) AppName() string { return s.key.App }

// UserID returns the id of the user.
func (s *Session) UserID() string { return s.key.User }

// Events returns the visible log of the session's view: what the model should see. A session from a Get with a filter
// shows the selected events and those logged since. A session from List shows only events logged since. A session from
// a Get with [WithHistory] first shows its history. The returned list never changes, and At returns nil for an index
// out of range. Each Session has its own copies of the events, so only its callers see a change of them.
func (s *Session) Events() session.Events {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.events()
}

// events returns what is shown. The lock is held.
func (s *Session) events() session.Events {
	switch {
	case s.history != nil:
		return s.history
	case s.frozen != nil:
		return listOf(s.frozen, s.given.event)
	case s.selection != nil:
		return listOf(s.selection.events, s.given.event)
	}
	v := s.stored.View
	return eventList{v.Len(), v.At, v.Events(), s.given.event}
}

// State returns the session's state. A key's value comes from the overlay, else from the state replayed from the log,
// else from the shared scopes as they were at the Get of the session, or at its last append that changed them. The
// state changes with the session's view. Set writes only to the overlay: to store a value, put it into an event's state
// delta. Get returns [session.ErrStateKeyNotExist] if the key does not exist.
func (s *Session) State() session.State { return state{s} }

// LastUpdateTime returns the time of the last appended event, visible or not, or the time of creation if there is no
// event.
func (s *Session) LastUpdateTime() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stored.Updated
}

// View returns the session's view, without a filter's effect. Apply patches made from it with [Service.ApplyPatch].
func (s *Session) View() fold.View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stored.View
}

// advance moves the session to the view after its own write, unless the session is already at a later view.
func (s *Session) advance(v fold.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen, s.history = nil, nil
	s.advanceLocked(v)
}

func (s *Session) advanceLocked(v fold.View) {
	if v.Seq() <= s.stored.View.Seq() {
		return
	}
	s.stored.View = v
	s.given.keep(v)
	if s.selection != nil {
		s.selection.advance(v)
	}
}

// appended moves the session to the view after its own event. If the event changes shared scopes, the session gets
// shared, their values after it. It reports whether this was the session's first event.
func (s *Session) appended(done store.Committed, e *session.Event, logged *patch.Event, shared map[string]patch.Value) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, s.hasAppended = !s.hasAppended, true
	s.history = nil
	switch {
	case !inNode(e):
		s.frozen = nil
	case s.frozen != nil || done.View.PatchSeq() != s.stored.View.PatchSeq():
		s.grow(done.Records, done.View)
	}
	s.advanceLocked(done.View)
	s.stored.Updated = e.Timestamp
	if shared != nil {
		s.stored.Shared = shared
	}
	for key, value := range e.Actions.StateDelta {
		if delete(s.overlay, key); convert.IsTemp(key) {
			s.overlay[key] = value
			if own, err := patch.NewValue(value); err == nil {
				s.overlay[key] = own
			}
		}
	}
	for _, changes := range []iter.Seq[patch.Change]{logged.Changes(), logged.SharedChanges()} {
		for c := range changes {
			given, there := e.Actions.StateDelta[c.Key]
			delete(s.typed, c.Key)
			if _, err := patch.NewValue(given); there && err != nil {
				if _, mended := convert.Plain(given); !mended {
					s.typed[c.Key] = typedValue{given, c.Value}
				}
			}
		}
	}
	return first
}
