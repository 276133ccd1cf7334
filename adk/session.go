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

// Session is a session that a [Service] returned. It has a view of the log, and an overlay of state values that are
// not in the log. An append or a patch through the Session updates its view. A Session is safe for concurrent use.
type Session struct {
	key      store.Key
	returned returnedEvents

	mu        sync.RWMutex
	stored    storage.Session
	selection *selection     // nil: show all visible events
	history   session.Events // if not nil, shown until the next append or patch through the session

	// frozen, if not nil, contains the events that the session shows while workflow nodes run. See growFrozen.
	frozen []*patch.Event

	// hasAppended reports whether an event was appended through this Session.
	hasAppended bool

	// overlay contains state that is not in the log: values from Set, and temp: keys. If a value is a patch.Value,
	// callers get the result of its Any method.
	overlay map[string]any

	// typed contains appended values whose Go types the log does not keep. Such a value is shown until the log has
	// another value for its key.
	typed map[string]typedValue
}

type typedValue struct {
	value  any
	logged patch.Value
}

// ID returns the session id.
func (s *Session) ID() string { return s.key.Session }

// AppName returns the app name.
func (s *Session) AppName() string { return s.key.App }

// UserID returns the user id.
func (s *Session) UserID() string { return s.key.User }

// Events returns the visible log of the session's view, which is what the model should see. Three kinds of sessions
// show other events:
//
//   - A session from a Get with a filter shows the selected events, and the events logged later.
//   - A session from List shows only events logged later.
//   - A session from a Get with [WithHistory] shows its history until the first append or patch through it.
//
// The returned list does not change. Its method At returns nil if the index is out of range. Each Session has its
// own copies of the events, so a caller that changes an event does not affect other Sessions.
func (s *Session) Events() session.Events {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.events()
}

// events implements [Session.Events]. The caller holds the lock.
func (s *Session) events() session.Events {
	switch {
	case s.history != nil:
		return s.history
	case s.frozen != nil:
		return newEventList(s.frozen, s.returned.event)
	case s.selection != nil:
		return newEventList(s.selection.events, s.returned.event)
	}
	v := s.stored.View
	return eventList{v.Len(), v.At, v.Events(), s.returned.event}
}

// State returns the session's state. A key is looked up in this order:
//
//   - The session's overlay, which contains values from Set, and "temp:" keys.
//   - The state that is computed from the log. It changes with the session's view.
//   - The shared scopes of the app and the user, as of the Get or of the session's last append that changed them.
//
// Set writes only to the overlay. To store a value, append an event with the value in its state delta. Get returns
// [session.ErrStateKeyNotExist] if the key does not exist.
func (s *Session) State() session.State { return state{s} }

// LastUpdateTime returns the time of the last appended event, even if the event is hidden. If there is no event, it
// returns the creation time.
func (s *Session) LastUpdateTime() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stored.Updated
}

// View returns the session's view. Filters do not affect it. Patches for [Service.ApplyPatch] are made from this
// view.
func (s *Session) View() fold.View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stored.View
}

// advance moves the session to the view after its own write, unless the session already has a later view.
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
	s.returned.prune(v)
	if s.selection != nil {
		s.selection.advance(v)
	}
}

// showAppended moves the session to the view after its own event. If the event changed shared scopes, shared
// contains these scopes as of the append. The result first reports whether the event was the first one appended
// through the session.
func (s *Session) showAppended(done store.Committed, e *session.Event, logged *patch.Event, shared map[string]patch.Value) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, s.hasAppended = !s.hasAppended, true
	s.history = nil
	switch {
	case !inNode(e):
		s.frozen = nil
	case s.frozen != nil || done.View.PatchSeq() != s.stored.View.PatchSeq():
		s.growFrozen(done.Records, done.View)
	}
	s.advanceLocked(done.View)
	s.stored.Updated = e.Timestamp
	if shared != nil {
		s.stored.Shared = shared
	}
	for key, value := range e.Actions.StateDelta {
		if delete(s.overlay, key); convert.IsTempKey(key) {
			s.overlay[key] = value
			if copied, err := patch.NewValue(value); err == nil {
				s.overlay[key] = copied
			}
		}
	}
	for _, changes := range []iter.Seq[patch.Change]{logged.Changes(), logged.SharedChanges()} {
		for c := range changes {
			value, ok := e.Actions.StateDelta[c.Key]
			delete(s.typed, c.Key)
			if _, err := patch.NewValue(value); ok && err != nil {
				if _, repaired := convert.Plain(value); !repaired {
					s.typed[c.Key] = typedValue{value, c.Value}
				}
			}
		}
	}
	return first
}
