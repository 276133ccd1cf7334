package adk_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// opener opens a store. Each call returns the same store, or another store with the same content.
type opener func(t *testing.T) *store.Store

var backends = []struct {
	name string
	make func(t *testing.T) opener
}{
	{"memory", func(*testing.T) opener {
		return openOnce(func() (*store.Store, error) { return store.OpenMemory(store.Options{}) })
	}},
	{"bolt", func(t *testing.T) opener { return openOnce(newFile(t)) }},
	{"bolt reopened", func(t *testing.T) opener {
		in := newFile(t)
		var s *store.Store
		return func(t *testing.T) *store.Store {
			if s != nil {
				noError(t, s.Close())
			}
			s = mustOpen(t)(in())
			return s
		}
	}},
	{"postgres", postgres},
}

// openOnce returns an opener that opens the storage at its first call and then returns the same store.
func openOnce(open openFunc) opener {
	var s *store.Store
	return func(t *testing.T) *store.Store {
		if s == nil {
			s = mustOpen(t)(open())
		}
		return s
	}
}

func mustOpen(t *testing.T) func(*store.Store, error) *store.Store {
	return func(s *store.Store, err error) *store.Store {
		t.Helper()
		noError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
}

// onEachBackend runs a test on each backend. For some backends, it closes the store and opens it again between
// operations.
func onEachBackend(t *testing.T, test func(t *testing.T, s reopeningService)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) { test(t, reopeningService{t, b.make(t)}) })
	}
}

// reopeningService is a service that opens the store again before each operation. A session stays usable after the
// store from which it was read is closed.
type reopeningService struct {
	t    *testing.T
	open opener
}

func (s reopeningService) reopened() *adk.Service { return newService(s.t, s.open(s.t)) }

func (s reopeningService) Create(ctx context.Context, r *session.CreateRequest) (*session.CreateResponse, error) {
	return s.reopened().Create(ctx, r)
}

func (s reopeningService) Get(ctx context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	return s.reopened().Get(ctx, r)
}

func (s reopeningService) List(ctx context.Context, r *session.ListRequest) (*session.ListResponse, error) {
	return s.reopened().List(ctx, r)
}

func (s reopeningService) Delete(ctx context.Context, r *session.DeleteRequest) error {
	return s.reopened().Delete(ctx, r)
}

func (s reopeningService) AppendEvent(ctx context.Context, sess session.Session, e *session.Event) error {
	return s.reopened().AppendEvent(ctx, sess, e)
}

// handleCalls returns a call of each method of the service that takes a session.
func handleCalls(svc func() *adk.Service) map[string]func(ctx context.Context, s session.Session) error {
	return map[string]func(ctx context.Context, s session.Session) error{
		"append": func(ctx context.Context, s session.Session) error {
			return svc().AppendEvent(ctx, s, textEvent("called", "user", "x"))
		},
		"patch": func(ctx context.Context, s session.Session) error {
			return errOf(svc().ApplyPatch(ctx, s, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{}))
		},
		"preview": func(ctx context.Context, s session.Session) error {
			return errOf(svc().Preview(ctx, s, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{}))
		},
		"revert":  func(ctx context.Context, s session.Session) error { return errOf(svc().Revert(ctx, s, "p")) },
		"rewind":  func(ctx context.Context, s session.Session) error { return errOf(svc().Rewind(ctx, s, "i")) },
		"view at": func(ctx context.Context, s session.Session) error { return errOf(svc().ViewAt(ctx, s, 0)) },
		"raw":     func(ctx context.Context, s session.Session) error { return firstError(svc().RawEvents(ctx, s, 1)) },
	}
}

func firstError(records iter.Seq2[patch.Record, error]) error {
	for _, err := range records {
		return err
	}
	return errors.New("no records")
}

func newService(t *testing.T, s *store.Store) *adk.Service {
	t.Helper()
	svc, err := adk.NewService(s, adk.Options{})
	noError(t, err)
	return svc
}

func inMemoryStore(t *testing.T) *store.Store {
	t.Helper()
	return mustOpen(t)(store.OpenMemory(store.Options{}))
}

func inMemory(t *testing.T) *adk.Service {
	t.Helper()
	return newService(t, inMemoryStore(t))
}

// testKey is the key of the session "s" that create creates.
var testKey = store.Key{App: "app", User: "user", Session: "s"}

// onStoreAndBases runs a test with a service over a store, and with a service over each of the bases.
func onStoreAndBases(t *testing.T, bases []base, opts adk.Options, test func(t *testing.T, s *adk.Service)) {
	t.Run("store", func(t *testing.T) { test(t, newQuietService(t, opts)) })
	for _, b := range bases {
		t.Run(b.name, func(t *testing.T) { test(t, wrap(t, b.make(t), opts)) })
	}
}

func create(t *testing.T, s session.Service, id string, state map[string]any) session.Session {
	t.Helper()
	r, err := s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: id, State: state})
	noError(t, err)
	return r.Session
}

func get(t *testing.T, s session.Service, id string) session.Session {
	t.Helper()
	r, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: id})
	noError(t, err)
	return r.Session
}

func textEvent(id, author, words string) *session.Event {
	role := genai.Role(genai.RoleModel)
	if author == "user" {
		role = genai.RoleUser
	}
	return &session.Event{
		ID: id, Author: author, InvocationID: "inv-" + id,
		Timestamp:   time.Date(2026, 1, 2, 3, 4, 5, 6789, time.UTC),
		LLMResponse: model.LLMResponse{Content: genai.NewContentFromText(words, role)},
	}
}

// timedEvent returns an event whose timestamp has n seconds.
func timedEvent(n int, id, author string) *session.Event {
	e := textEvent(id, author, "this is "+id)
	e.Timestamp = time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC)
	return e
}

// userMessages returns n events of the user, e0, e1 and so on, one second apart.
func userMessages(n int) (events []*session.Event) {
	for i := range n {
		events = append(events, timedEvent(i, fmt.Sprint("e", i), "user"))
	}
	return events
}

func appendAll(t *testing.T, s session.Service, sess session.Session, events ...*session.Event) {
	t.Helper()
	for _, e := range events {
		noError(t, s.AppendEvent(t.Context(), sess, e))
	}
}

func deltaEvent(id string, state map[string]any) *session.Event {
	return &session.Event{ID: id, Author: "agent", Actions: session.EventActions{StateDelta: state}}
}

func ids(sess session.Session) []string {
	out := []string{}
	for e := range sess.Events().All() {
		out = append(out, e.ID)
	}
	return out
}

func stateOf(sess session.Session) map[string]any {
	out := map[string]any{}
	for k, v := range sess.State().All() {
		out[k] = v
	}
	return out
}

func loggedEvents(t *testing.T, s *adk.Service, sess session.Session) (n int) {
	t.Helper()
	for r, err := range s.RawEvents(t.Context(), sess, 1) {
		noError(t, err)
		if r.Event != nil {
			n++
		}
	}
	return n
}

// noError fails the test if err is not nil. t may be a *testing.T or a *rapid.T.
func noError(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func errOf[T any](_ T, err error) error { return err }

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got\n%#v\nwant\n%#v", what, got, want)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got the error %v, want %v", err, want)
	}
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgtest.Options{NoSync: true})) }

// postgres returns an opener that alternates between two stores on one schema, as if two processes used the
// schema.
func postgres(t *testing.T) opener {
	open := newSchema(t)
	var stores [2]*store.Store
	turn := 0
	return func(t *testing.T) *store.Store {
		turn = 1 - turn
		if stores[turn] == nil {
			stores[turn] = mustOpen(t)(open())
		}
		return stores[turn]
	}
}

var schemaCount atomic.Int64

// newSchema returns a storage in a new schema on the server that all tests share.
func newSchema(t *testing.T) openFunc {
	t.Helper()
	dsn := pgtest.Common(t).DSN("postgres") + " synchronous_commit=off"
	schema := fmt.Sprint("test", schemaCount.Add(1))
	return func() (*store.Store, error) {
		return pg.Open(t.Context(), dsn, store.Options{}, pg.Options{Schema: schema})
	}
}
