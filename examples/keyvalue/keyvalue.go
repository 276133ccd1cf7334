// Package keyvalue is an example of a custom session service over a key-value store. adk.Wrap adds patches,
// compaction and history to it. The service implements only what Wrap requires.
package keyvalue

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"
)

// Service stores sessions and shared state as JSON in a key-value store. In this example, the store is a
// sync.Map.
type Service struct {
	mu    sync.Mutex // if several processes use the store, use compare-and-swap instead of a mutex
	store sync.Map
}

// stored is a session. The type is used for sessions in the store and for those returned to callers.
type stored struct {
	App, User, Name string
	Updated         time.Time
	Values          state
	Log             events
}

func (s *stored) AppName() string           { return s.App }
func (s *stored) UserID() string            { return s.User }
func (s *stored) ID() string                { return s.Name }
func (s *stored) LastUpdateTime() time.Time { return s.Updated }
func (s *stored) State() session.State      { return s.Values }
func (s *stored) Events() session.Events    { return s.Log }

type events []*session.Event

func (e events) All() iter.Seq[*session.Event] { return slices.Values(e) }
func (e events) Len() int                      { return len(e) }
func (e events) At(i int) *session.Event       { return e[i] }

type state map[string]any

func (s state) All() iter.Seq2[string, any] { return maps.All(s) }
func (s state) Set(key string, v any) error {
	s[key] = v
	return nil
}

func (s state) Get(key string) (any, error) {
	if v, ok := s[key]; ok {
		return v, nil
	}
	return nil, session.ErrStateKeyNotExist
}

// withPrefix returns the entries whose keys have the given prefix.
func (s state) withPrefix(prefix string) state {
	s = maps.Clone(s)
	maps.DeleteFunc(s, func(key string, _ any) bool { return !strings.HasPrefix(key, prefix) })
	return s
}

// key returns the key of a session. If the session is "", it is the key of the user's shared state. If user
// and session are "", it is the key of the app's shared state.
func key(app, user, id string) string { return fmt.Sprintf("%q %q %q", app, user, id) }

// load reads a session. If the session does not exist, the Name of the result is "".
func (s *Service) load(app, user, id string) *stored {
	sess := &stored{App: app, User: user, Values: state{}}
	read := func(key string, v any) {
		if text, ok := s.store.Load(key); ok {
			_ = json.Unmarshal(text.([]byte), v)
		}
	}
	read(key(app, user, id), sess)
	read(key(app, user, ""), &sess.Values)
	read(key(app, "", ""), &sess.Values)
	return sess
}

// save applies delta to the state of a session, and writes the session and the shared state.
func (s *Service) save(sess *stored, delta map[string]any) error {
	maps.Copy(sess.Values, delta)
	for key, v := range map[string]any{
		key(sess.App, sess.User, sess.Name): sess,
		key(sess.App, sess.User, ""):        sess.Values.withPrefix(session.KeyPrefixUser),
		key(sess.App, "", ""):               sess.Values.withPrefix(session.KeyPrefixApp),
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		s.store.Store(key, text)
	}
	return nil
}

// Create stores a new session. If the request has no id, Create generates one. It fails if the session
// exists.
func (s *Service) Create(ctx context.Context, r *session.CreateRequest) (*session.CreateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := cmp.Or(r.SessionID, platform.NewUUID(ctx))
	sess := s.load(r.AppName, r.UserID, id)
	if sess.Name != "" {
		return nil, fmt.Errorf("session %q already exists", id)
	}
	sess.Name, sess.Updated = id, platform.Now(ctx)
	return &session.CreateResponse{Session: sess}, s.save(sess, r.State)
}

// Get returns a session with all its events. It fails if the session does not exist.
func (s *Service) Get(_ context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	sess := s.load(r.AppName, r.UserID, r.SessionID)
	if sess.Name == "" {
		return nil, fmt.Errorf("session %q not found", r.SessionID)
	}
	return &session.GetResponse{Session: sess}, nil // adk.Wrap applies the request's filters
}

// List returns the sessions of a user. If the request has no user id, it returns the sessions of the whole
// app.
func (s *Service) List(_ context.Context, r *session.ListRequest) (*session.ListResponse, error) {
	out := &session.ListResponse{}
	for _, text := range s.store.Range {
		var sess stored
		if json.Unmarshal(text.([]byte), &sess) == nil && sess.Name != "" && sess.App == r.AppName && (r.UserID == "" || sess.User == r.UserID) {
			out.Sessions = append(out.Sessions, &sess)
		}
	}
	return out, nil
}

// Delete removes a session, but not the state that the session shares with other sessions.
func (s *Service) Delete(_ context.Context, r *session.DeleteRequest) error {
	s.store.Delete(key(r.AppName, r.UserID, r.SessionID))
	return nil
}

// AppendEvent adds an event to a session and applies its state delta. It fails if the session does not exist.
func (s *Service) AppendEvent(_ context.Context, to session.Session, e *session.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.load(to.AppName(), to.UserID(), to.ID())
	if sess.Name == "" {
		return fmt.Errorf("session %q not found", to.ID())
	}
	sess.Log, sess.Updated = append(sess.Log, e), e.Timestamp
	return s.save(sess, e.Actions.StateDelta)
}
