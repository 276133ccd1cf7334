package adk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"
)

// shaky is a session service of many habits, each of which some service has.
type shaky struct {
	timed  bool // orders events by time, those of one time in any order
	strict bool // refuses a session that has not seen what was appended last
	coarse bool // cuts times off at microseconds
	lossy  bool // gives back what JSON says
	rename bool // gives events ids of its own

	mu        sync.Mutex
	sessions  map[string]*shakySession
	fails     []failing // the next appends
	meanwhile func()    // called once, before the next append
	down      bool
	appends   int
	given     int    // events that were read
	order     uint64 // of events of one time, until it is another
}

// failing is how an append fails.
type failing string

const (
	not       failing = ""
	before    failing = "before"
	afterward failing = "after it has landed"
	panics    failing = "with a panic"
)

var errShaky = errors.New("the service fails")

type shakySession struct {
	broken   bool // by a panic
	id, user string
	events   []*session.Event
	state    map[string]any
	updated  time.Time
	last     *shakySession // as it was read: what it was read from
}

func (s *shakySession) ID() string                { return s.id }
func (s *shakySession) AppName() string           { return "app" }
func (s *shakySession) UserID() string            { return s.user }
func (s *shakySession) LastUpdateTime() time.Time { return s.updated }
func (s *shakySession) Events() session.Events    { return s }
func (s *shakySession) State() session.State      { return shakyState(s.state) }
func (s *shakySession) Len() int                  { return len(s.events) }
func (s *shakySession) At(i int) *session.Event   { return s.events[i] }
func (s *shakySession) All() iter.Seq[*session.Event] {
	return slices.Values(s.events)
}

type shakyState map[string]any

func (s shakyState) Get(key string) (any, error) {
	v, ok := s[key]
	if !ok {
		return nil, session.ErrStateKeyNotExist
	}
	return v, nil
}
func (s shakyState) Set(key string, v any) error { s[key] = v; return nil }
func (s shakyState) All() iter.Seq2[string, any] { return maps.All(s) }

// through is a value as it comes back.
func through[T any](s *shaky, v T) (out T) {
	if !s.lossy {
		return v
	}
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

func (s *shaky) Create(_ context.Context, r *session.CreateRequest) (*session.CreateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[r.SessionID] != nil || s.down {
		return nil, errShaky
	}
	state := map[string]any{}
	maps.Copy(state, r.State)
	if s.sessions == nil {
		s.sessions = map[string]*shakySession{}
	}
	s.sessions[r.SessionID] = &shakySession{id: r.SessionID, user: r.UserID, state: state, updated: time.Unix(1, 0)}
	return &session.CreateResponse{Session: s.read(s.sessions[r.SessionID])}, nil
}

// read gives a session as it is.
func (s *shaky) read(of *shakySession) *shakySession {
	events := slices.Clone(of.events)
	if s.timed {
		rand.New(rand.NewPCG(1, s.order)).Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		slices.SortStableFunc(events, func(a, b *session.Event) int { return a.Timestamp.Compare(b.Timestamp) })
	}
	for i, e := range events {
		events[i] = through(s, e)
	}
	return &shakySession{id: of.id, user: of.user, events: events, state: through(s, maps.Clone(of.state)), updated: of.updated, last: of}
}

func (s *shaky) Get(ctx context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	of := s.sessions[r.SessionID]
	if of == nil || s.down {
		return nil, errShaky
	}
	read := s.read(of)
	if n := r.NumRecentEvents; n > 0 {
		read.events = read.events[max(0, len(read.events)-n):]
	}
	read.events = slices.DeleteFunc(read.events, func(e *session.Event) bool { return e.Timestamp.Before(r.After) })
	s.given += len(read.events)
	return &session.GetResponse{Session: read}, nil
}

func (s *shaky) List(context.Context, *session.ListRequest) (*session.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errShaky
	}
	out := &session.ListResponse{}
	for _, of := range s.sessions {
		listed := s.read(of)
		listed.events = nil
		out.Sessions = append(out.Sessions, listed)
	}
	return out, nil
}

func (s *shaky) Delete(_ context.Context, r *session.DeleteRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errShaky
	}
	delete(s.sessions, r.SessionID)
	return nil
}

func (s *shaky) AppendEvent(_ context.Context, of session.Session, e *session.Event) error {
	s.mu.Lock()
	if do := s.meanwhile; do != nil {
		s.meanwhile = nil
		s.mu.Unlock()
		do()
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	read, ok := of.(*shakySession)
	if !ok {
		return fmt.Errorf("unexpected session type %T", of)
	}
	s.appends++
	how := not
	if len(s.fails) > 0 {
		how, s.fails = s.fails[0], s.fails[1:]
	}
	read.events = append(read.events, e) // whatever comes of it
	stored := s.sessions[read.id]
	switch {
	case how == panics:
		read.broken = true
		panic(errShaky)
	case s.down, stored == nil, how == before, read.broken:
		return errShaky
	case s.strict && stored.updated.After(read.updated):
		return fmt.Errorf("stale: %w", errShaky)
	}
	kept := *e
	if s.coarse {
		kept.Timestamp = kept.Timestamp.Truncate(time.Microsecond)
	}
	if s.rename {
		kept.ID = fmt.Sprintf("own-%d", len(stored.events))
	}
	kept.Actions.StateDelta = maps.Clone(e.Actions.StateDelta)
	for key, v := range e.Actions.StateDelta {
		if !strings.HasPrefix(key, "temp:") {
			stored.state[key] = v
		} else {
			delete(kept.Actions.StateDelta, key)
		}
	}
	stored.events = append(stored.events, &kept)
	stored.updated = kept.Timestamp
	if how == afterward {
		return errShaky
	}
	read.updated = kept.Timestamp
	return nil
}

var _ session.Service = (*shaky)(nil)
