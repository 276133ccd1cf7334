// Command keyvalue wraps a session service of one's own: here one on a key-value store. It needs
// only what session.Service asks for; [adk.Wrap] adds patches, compaction and history.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
)

// service keeps sessions as JSON under keys. A map stands for the key-value store.
type service struct {
	mu   sync.Mutex
	keys map[string]string
}

// stored is a session as it is kept. Its state has no app: and user: keys.
type stored struct {
	App, User, ID string
	Updated       time.Time
	Values        state
	List          []*session.Event
}

func (s *stored) AppName() string           { return s.App }
func (s *stored) UserID() string            { return s.User }
func (s *stored) State() session.State      { return s.Values }
func (s *stored) Events() session.Events    { return events(s.List) }
func (s *stored) LastUpdateTime() time.Time { return s.Updated }

// read is a session as it was read.
type read struct{ *stored }

func (s read) ID() string { return s.stored.ID }

type state map[string]any

func (s state) Get(key string) (any, error) {
	if v, ok := s[key]; ok {
		return v, nil
	}
	return nil, session.ErrStateKeyNotExist
}
func (s state) Set(key string, v any) error { s[key] = v; return nil }
func (s state) All() iter.Seq2[string, any] { return maps.All(s) }

type events []*session.Event

func (e events) All() iter.Seq[*session.Event] { return slices.Values(e) }
func (e events) Len() int                      { return len(e) }
func (e events) At(i int) *session.Event       { return e[i] }

func key(parts ...string) string {
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// load reads the value of a key. It reports whether there is one.
func (s *service) load(key string, into any) bool {
	text, ok := s.keys[key]
	return ok && json.Unmarshal([]byte(text), into) == nil
}

func (s *service) save(key string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		s.keys[key] = string(text)
	}
	return err
}

// set sets keys of a state, each in its scope; temp: keys are not kept.
func (s *service) set(of *stored, delta map[string]any) error {
	shared := map[string]state{key("app", of.App): {}, key("user", of.App, of.User): {}}
	for at, values := range shared {
		s.load(at, &values)
	}
	for name, v := range delta {
		switch scope, _, _ := strings.Cut(name, ":"); scope {
		case "app":
			shared[key("app", of.App)][name] = v
		case "user":
			shared[key("user", of.App, of.User)][name] = v
		case "temp":
		default:
			of.Values[name] = v
		}
	}
	for at, values := range shared {
		if err := s.save(at, values); err != nil {
			return err
		}
	}
	return s.save(key("session", of.App, of.User, of.ID), of)
}

// find reads a session, with the state that it shares with others.
func (s *service) find(app, user, id string) (read, error) {
	out := &stored{}
	if !s.load(key("session", app, user, id), out) {
		return read{}, fmt.Errorf("session %s not found", id)
	}
	s.load(key("app", app), &out.Values)
	s.load(key("user", app, user), &out.Values)
	return read{out}, nil
}

// Create implements session.Service.
func (s *service) Create(ctx context.Context, r *session.CreateRequest) (*session.CreateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.AppName == "" || r.UserID == "" {
		return nil, errors.New("app name and user id are required")
	}
	of := &stored{App: r.AppName, User: r.UserID, ID: r.SessionID, Updated: platform.Now(ctx), Values: state{}}
	if of.ID == "" {
		of.ID = platform.NewUUID(ctx)
	}
	if _, err := s.find(of.App, of.User, of.ID); err == nil {
		return nil, fmt.Errorf("session %s already exists", of.ID)
	}
	if err := s.set(of, r.State); err != nil {
		return nil, err
	}
	out, err := s.find(of.App, of.User, of.ID)
	return &session.CreateResponse{Session: out}, err
}

// Get implements session.Service.
func (s *service) Get(_ context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := s.find(r.AppName, r.UserID, r.SessionID)
	if err != nil {
		return nil, err
	}
	if n := r.NumRecentEvents; n > 0 {
		out.List = out.List[max(0, len(out.List)-n):]
	}
	out.List = slices.DeleteFunc(out.List, func(e *session.Event) bool { return e.Timestamp.Before(r.After) })
	return &session.GetResponse{Session: out}, nil
}

// List implements session.Service.
func (s *service) List(_ context.Context, r *session.ListRequest) (*session.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix, out := key("session", r.AppName)+"/", &session.ListResponse{}
	if r.UserID != "" {
		prefix = key("session", r.AppName, r.UserID) + "/"
	}
	for _, at := range slices.Sorted(maps.Keys(s.keys)) {
		of := &stored{}
		if !strings.HasPrefix(at, prefix) || !s.load(at, of) {
			continue
		}
		one, err := s.find(of.App, of.User, of.ID)
		if err != nil {
			return nil, err
		}
		one.List = nil
		out.Sessions = append(out.Sessions, one)
	}
	return out, nil
}

// Delete implements session.Service.
func (s *service) Delete(_ context.Context, r *session.DeleteRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key("session", r.AppName, r.UserID, r.SessionID))
	return nil
}

// AppendEvent implements session.Service. Writers of several processes need a compare-and-swap here:
// refuse a session that is not as it was read, and the wrapper reads it anew and tries again.
func (s *service) AppendEvent(_ context.Context, to session.Session, e *session.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := &stored{}
	if !s.load(key("session", to.AppName(), to.UserID(), to.ID()), of) {
		return errors.New("session not found")
	}
	of.List, of.Updated = append(of.List, e), e.Timestamp
	return s.set(of, e.Actions.StateDelta)
}

func run(ctx context.Context, w io.Writer) error {
	sessions, err := adk.Wrap(&service{keys: map[string]string{}}, adk.Options{})
	if err != nil {
		return err
	}
	r, err := sessions.Create(ctx, &session.CreateRequest{AppName: "shop", UserID: "ann"})
	if err != nil {
		return err
	}
	for _, text := range []string{"My card is 4711.", "Is there a lamp?"} {
		e := &session.Event{Author: "user", LLMResponse: model.LLMResponse{Content: genai.NewContentFromText(text, genai.RoleUser)}}
		if err := sessions.AppendEvent(ctx, r.Session, e); err != nil {
			return err
		}
	}
	if _, err := sessions.ApplyPatch(ctx, r.Session, patch.NewSplice(0, 1)); err != nil {
		return err
	}
	again, err := sessions.Get(ctx, &session.GetRequest{AppName: "shop", UserID: "ann", SessionID: r.Session.ID()})
	if err != nil {
		return err
	}
	for e := range again.Session.Events().All() {
		fmt.Fprintln(w, e.Author, "said:", e.Content.Parts[0].Text)
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
