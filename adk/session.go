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

// Session is a session as a [Service] gives it: a view of its log that moves on when
// something is appended or patched through it, and an overlay of state that is never
// stored. It is safe for use by any number of goroutines.
type Session struct {
	key   store.Key
	given ownEvents

	mu        sync.RWMutex
	stored    storage.Session
	selection *selection     // nil: all that is visible
	history   session.Events // if not nil, what is shown until the session moves on

	// frozen, if not nil, is what is shown while nodes run: see grow.
	frozen []*patch.Event

	// hasAppended says that something was appended.
	hasAppended bool

	// overlay is state that this session shows and its stored form does not: what was
	// set, and temp: keys. Values that are a patch.Value are shown as its Any gives them.
	overlay map[string]any

	// typed has values that were appended through this session and that do not come back with their Go
	// types. They are shown where their key has the value that was logged.
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

// Events returns the visible log as it stands: what the model should see. A session that
// was got with a filter shows what that chose and what was logged since; one from a list
// only the latter; one that was got with [WithHistory] shows its history at first. The list
// never changes, and At gives nil for an index out of range. The session gives the same event each time, which
// no other session has: what a caller does to it, only the callers of this session see.
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

// State returns the session's state: the overlay, else the state replayed from the log,
// else the scopes shared with other sessions as they were when the session was got. It
// moves on with the session. Its Set writes to the overlay alone: what is to be stored
// goes into an event's state delta. Its Get returns session.ErrStateKeyNotExist if the key
// is not there.
func (s *Session) State() session.State { return state{s} }

// LastUpdateTime returns the time of the event that was appended last, whatever patches
// hide, or that of the session's creation if there is none.
func (s *Session) LastUpdateTime() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stored.Updated
}

// View returns the view that the session stands at, whatever it was filtered by. A patch
// made from it is applied with [Service.ApplyPatch].
func (s *Session) View() fold.View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stored.View
}

// advance moves the session to a view that a write of its own gave, unless another has
// moved it further.
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

// appended moves the session to the view after an event of its own was logged, and to the shared scopes as they
// were found after it, if the event changes them. It reports whether that was its first.
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
