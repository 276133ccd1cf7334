package adk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"google.golang.org/genai"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

func TestWrapRefuses(t *testing.T) {
	var none *flakyService
	for name, base := range map[string]session.Service{"nil": nil, "a nil pointer": none, "a service of its own": inMemory(t)} {
		if _, err := adk.Wrap(base, adk.Options{}); err == nil {
			t.Errorf("%s was wrapped", name)
		} else {
			wantError(t, err, patch.ErrInvalid)
		}
	}
}

// A patch is stored as one event of the base. The event has no content, and its JSON describes what the patch
// removes.
func TestWrapLeavesAnAuditLog(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", map[string]any{"k": "initial", "app:a": "x"})
		for i := range 5 {
			e := timedEvent(i, fmt.Sprint("e", i), "agent")
			e.Actions.StateDelta = map[string]any{"k": fmt.Sprint("leak ", i), fmt.Sprint("k", i): "v"}
			noError(t, s.AppendEvent(t.Context(), sess, e))
		}
		replacement, err := patch.NewEvent(patch.Fields{
			ID: "instead", Author: "agent", Content: patch.Text("model", "instead"),
			Actions: patch.Actions{StateDelta: map[string]any{"user:u": "shared", "own": "set"}},
		})
		noError(t, err)
		done, err := s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(1, 4, replacement).WithID("cut")}, store.PatchOptions{})
		noError(t, err)
		equal(t, "id", done.Records[0].ID(), "cut")
		equal(t, "seq", done.Records[0].Seq, uint64(6))
		want := map[string]any{"k": "leak 0", "k0": "v", "own": "set", "app:a": "x", "user:u": "shared"}
		got := get(t, s, "s")
		equal(t, "visible", ids(got), []string{"e0", "instead"})
		equal(t, "state", stateOf(got), want)
		equal(t, "after the patch", ids(sess), []string{"e0", "instead"})
		equal(t, "seqs are the same", got.(*adk.Session).View().Creation(), sess.(*adk.Session).View().Creation())
		equal(t, "time", got.LastUpdateTime().UTC(), timedEvent(4, "", "").Timestamp)

		// Hiding the first event undoes its state changes. So k has its initial value again, and the other event's
		// value stays.
		noError(t, errOf(s.ApplyPatch(t.Context(), got, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})))
		equal(t, "state", stateOf(get(t, s, "s")), map[string]any{"k": "initial", "own": "set", "app:a": "x", "user:u": "shared"})
		noError(t, errOf(s.Revert(t.Context(), got, "cut")))
		equal(t, "visible", ids(get(t, s, "s")), []string{"e1", "e2", "e3", "e4"})

		raw := get(t, base, "s")
		var carriers []*session.Event
		for e := range raw.Events().All() {
			if e.CustomMetadata["_patchlog"] != nil {
				carriers = append(carriers, e)
			}
		}
		equal(t, "events of the base", raw.Events().Len(), 5+3)
		equal(t, "that carry patches", len(carriers), 3)
		for _, e := range carriers {
			if e.Content != nil || e.Author != "user" || !e.Timestamp.After(timedEvent(4, "", "").Timestamp) {
				t.Errorf("%+v", e)
			}
			if _, ok := e.CustomMetadata["_patchlog"].(string); !ok {
				t.Errorf("%T", e.CustomMetadata["_patchlog"])
			}
		}
		// Another wrapper of the base shows the same events.
		equal(t, "visible", ids(get(t, wrap(t, base, adk.Options{}), "s")), []string{"e1", "e2", "e3", "e4"})
		equal(t, "state", stateOf(get(t, wrap(t, base, adk.Options{}), "s")), stateOf(get(t, s, "s")))
	})
}

// An agent gives the same answers if some runs of a session use the base and others the wrapped service. Both
// bases then contain the same number of events.
func TestWrapAlternatesWithBase(t *testing.T) {
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for _, b := range bases {
		for _, none := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, none %v", b.name, none), func(t *testing.T) {
				base, alone := b.make(t), b.make(t)
				wrapped := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})}})
				turn := func(on session.Service, n int) string {
					cfg := llmagent.Config{Name: "assistant", Model: counter{}}
					if none {
						cfg.IncludeContents = llmagent.IncludeContentsNone
					}
					a, err := llmagent.New(cfg)
					noError(t, err)
					return lastWords(runTurn(t, newRunner(t, a, on), genai.NewContentFromText(question(n), "user")))
				}
				for n := range 12 {
					want := turn(alone, n)
					if n < 3 || n >= 9 {
						equal(t, "without the wrapper", turn(base, n), want)
						continue
					}
					got := turn(wrapped, n)
					if !none && n == 8 && got == want {
						t.Error("nothing was compacted")
					}
					wrapped.WaitForCompaction(t)
				}
				plain := func(s session.Service) (out []string) {
					for e := range get(t, s, "s").Events().All() {
						if e.Content != nil {
							out = append(out, e.Author+": "+e.Content.Parts[0].Text)
						}
					}
					return out
				}
				if got, want := len(plain(base)), len(plain(alone)); got != want {
					t.Errorf("%d events, want %d", got, want)
				}
				if n := get(t, wrapped, "s").Events().Len(); n >= len(plain(base)) {
					t.Errorf("%d events are visible", n)
				}
			})
		}
	}
}

// Sessions do not show the reserved state key, and callers cannot set it.
func TestWrapReservedKey(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", map[string]any{"k": "v"})
		equal(t, "state", stateOf(sess), map[string]any{"k": "v"})
		r, err := s.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
		noError(t, err)
		equal(t, "listed state", stateOf(r.Sessions[0]), map[string]any{"k": "v"})
		wantError(t, errOf(s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", State: map[string]any{"_patchlog": 1}})), patch.ErrInvalid)
		wantError(t, s.AppendEvent(t.Context(), sess, deltaEvent("e", map[string]any{"_patchlog": 1})), patch.ErrInvalid)
		forged := &session.Event{ID: "forged"}
		forged.CustomMetadata = map[string]any{"_patchlog": "{}"}
		wantError(t, s.AppendEvent(t.Context(), sess, forged), patch.ErrInvalid)
		equal(t, "events", ids(sess), []string{})
		// An event with content is never interpreted as patches, whatever its metadata.
		e := timedEvent(1, "e", "user")
		e.CustomMetadata = map[string]any{"_patchlog": `{"version":1,"patches":[]}`}
		appendAll(t, s, sess, e)
		for _, reader := range []session.Service{s, wrap(t, base, adk.Options{})} {
			equal(t, "events", ids(get(t, reader, "s")), []string{"e"})
		}
	})
}

// All patches of a group must be logged in one call.
func TestWrapGroups(t *testing.T) {
	onEachBase(t, func(t *testing.T, _ session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		appendAll(t, s, sess, userMessages(3)...)
		noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 1).WithGroup("g")}, store.PatchOptions{})))
		wantError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 1).WithGroup("g")}, store.PatchOptions{})), patch.ErrInvalid)
		done, err := s.Rewind(t.Context(), sess, "inv-e1")
		noError(t, err)
		equal(t, "events", ids(get(t, s, "s")), []string{})
		noError(t, errOf(s.Revert(t.Context(), sess, done.Records[0].ID())))
		equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2"})
		wantError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{nil}, store.PatchOptions{})), patch.ErrInvalid)
		wantError(t, errOf(s.Rewind(t.Context(), sess, "")), patch.ErrInvalid)
		wantError(t, errOf(s.Rewind(t.Context(), sess, "nobody's")), fold.ErrEventNotFound)
		wantError(t, errOf(s.Revert(t.Context(), sess, "nobody's")), patch.ErrInvalid)
	})
}

// base is one of the ADK services that the tests wrap.
type base struct {
	name string
	make func(t *testing.T) session.Service
}

// bases contains ADK's own services. The service on SQLite is slow and orders events by time.
var bases = []base{
	{"memory", func(*testing.T) session.Service { return session.InMemoryService() }},
	{"sqlite", func(t *testing.T) session.Service {
		return newSQLiteService(t, filepath.Join(t.TempDir(), "sessions.sqlite"))
	}},
}

func newSQLiteService(t *testing.T, path string) session.Service {
	t.Helper()
	s, err := database.NewSessionService(sqlite.Open(path+"?_pragma=synchronous(off)&_pragma=journal_mode(memory)&_pragma=foreign_keys(on)"), &gorm.Config{Logger: logger.Discard, PrepareStmt: true, SkipDefaultTransaction: true})
	noError(t, err)
	noError(t, database.AutoMigrate(s))
	return s
}

func wrap(t *testing.T, base session.Service, opts adk.Options) *adk.Service {
	t.Helper()
	s, err := adk.Wrap(base, opts)
	noError(t, err)
	return s
}

func onEachBase(t *testing.T, test func(t *testing.T, base session.Service, s *adk.Service)) {
	for _, b := range bases {
		t.Run(b.name, func(t *testing.T) {
			base := b.make(t)
			test(t, base, wrap(t, base, adk.Options{}))
		})
	}
}

type createRecorder struct {
	session.Service
	request session.CreateRequest
}

func (c *createRecorder) Create(ctx context.Context, r *session.CreateRequest) (*session.CreateResponse, error) {
	c.request = *r
	return c.Service.Create(ctx, r)
}

// The base receives the whole request, including the fields that newer ADK versions add, such as DisplayName.
func TestWrapPassesRequests(t *testing.T) {
	base := &createRecorder{Service: session.InMemoryService()}
	asked := session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"}
	for i := range reflect.TypeFor[session.CreateRequest]().NumField() {
		if f := reflect.ValueOf(&asked).Elem().Field(i); f.IsZero() && f.Kind() == reflect.String {
			f.SetString("newer")
		}
	}
	noError(t, errOf(wrap(t, base, adk.Options{}).Create(t.Context(), &asked)))
	base.request.State = nil // the state contains the wrapper's own key
	equal(t, "request", base.request, asked)
}

// When a session has been deleted, its log and its search index are removed from memory, even if it was deleted in
// the base without the wrapper.
func TestWrapForgetsDeletedSessions(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	for _, by := range []session.Service{s, base} {
		appendAll(t, s, create(t, s, "s", nil), textEvent("e", "user", "apples"))
		r, err := s.Memory().SearchMemory(t.Context(), &memory.SearchRequest{AppName: "app", UserID: "user", Query: "apples"})
		noError(t, err)
		equal(t, "found", len(r.Memories), 1)
		if s.CachedLogs() == 0 || s.IndexBytes() == 0 {
			t.Fatal("nothing is cached, so the test has no effect")
		}
		noError(t, by.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
		_, err = s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
		wantError(t, err, store.ErrNotFound)
		equal(t, "cached", s.CachedLogs(), 0)
		equal(t, "bytes of the index", s.IndexBytes(), 0)
	}
}

// A read converts and folds only the new events.
func TestWrapReadsOnlyNewEvents(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 3000 {
		noError(t, s.AppendEvent(t.Context(), sess, textEvent(fmt.Sprint("e", i), "user", "x")))
	}
	first := get(t, s, "s").(*adk.Session).View()
	allocs := testing.AllocsPerRun(5, func() { get(t, s, "s") })
	if allocs > 300 {
		t.Errorf("a read makes %v allocations", allocs)
	}
	for i, e := range get(t, s, "s").(*adk.Session).View().Events() {
		if e != first.At(i) {
			t.Fatalf("event %d was read again", i)
		}
	}
}

// The caller gets the base's error and can retry the call.
func TestWrapFailingBase(t *testing.T) {
	base := &flakyService{rejectsStale: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	base.down = true
	e := timedEvent(1, "e1", "user")
	err := s.AppendEvent(t.Context(), sess, e)
	wantError(t, err, errFlaky)
	wantError(t, errOf(s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})), errFlaky)
	wantError(t, errOf(s.List(t.Context(), &session.ListRequest{AppName: "app"})), errFlaky)
	wantError(t, s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}), errFlaky)
	wantError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})), errFlaky)
	wantError(t, errOf(s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s2"})), errFlaky)
	base.down = false
	noError(t, s.AppendEvent(t.Context(), sess, e))
	base.failures = []failure{failBefore}
	err = s.AppendEvent(t.Context(), sess, timedEvent(2, "e2", "user"))
	wantError(t, err, errFlaky)
	base.failures = []failure{failAfter}
	noError(t, s.AppendEvent(t.Context(), sess, timedEvent(3, "e3", "user")))
	equal(t, "events", ids(sess), []string{"e1", "e3"})
	noError(t, s.AppendEvent(t.Context(), sess, timedEvent(3, "e3", "user"))) // the second append is a retry
	wantError(t, s.AppendEvent(t.Context(), sess, timedEvent(4, "e3", "agent")), store.ErrDuplicateID)
	equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e3"})
	// An append that fails is not retried if no other writer has appended.
	base.appends = 0
	base.failures = []failure{failBefore, failBefore}
	wantError(t, s.AppendEvent(t.Context(), sess, timedEvent(5, "e5", "user")), errFlaky)
	equal(t, "tries", base.appends, 1)
	// If the caller's context has ended, the append may still take effect, so the error is ErrOutcomeUnknown.
	ctx, cancel := context.WithCancel(t.Context())
	base.beforeAppend = cancel
	base.failures = []failure{failBefore}
	wantError(t, s.AppendEvent(ctx, sess, timedEvent(6, "e6", "user")), store.ErrOutcomeUnknown)
	wantError(t, s.AppendEvent(ctx, sess, timedEvent(6, "e6", "user")), context.Canceled)
	ctx, base.beforeAppend = context.WithCancel(t.Context())
	base.failures = []failure{failAfter} // the append takes effect, and the wrapper finds the event in the base
	noError(t, s.AppendEvent(ctx, sess, timedEvent(7, "e7", "user")))
	// A panic of the base leaves no session locked.
	func() {
		defer func() { _ = recover() }()
		base.failures = []failure{failWithPanic}
		_ = s.AppendEvent(t.Context(), sess, timedEvent(8, "e8", "user"))
		t.Error("the append did not panic")
	}()
	noError(t, s.AppendEvent(t.Context(), sess, timedEvent(9, "e9", "user")))
	equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e3", "e7", "e9"})
}

// deletingList is a service whose List also returns a session that no longer exists.
type deletingList struct{ session.Service }

func (l deletingList) List(ctx context.Context, r *session.ListRequest) (*session.ListResponse, error) {
	out, err := l.Service.List(ctx, r)
	if err == nil && len(out.Sessions) == 2 {
		s := out.Sessions[0]
		err = l.Delete(ctx, &session.DeleteRequest{AppName: s.AppName(), UserID: s.UserID(), SessionID: s.ID()})
	}
	return out, err
}

// List omits a session that is deleted while List runs.
func TestWrapListOmitsDeletedSessions(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, _ *adk.Service) {
		create(t, base, "a", nil)
		create(t, base, "b", nil)
		r, err := wrap(t, deletingList{base}, adk.Options{}).List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
		noError(t, err)
		equal(t, "sessions", len(r.Sessions), 1)
	})
}

// A value that JSON cannot encode is shown as text. The rest of the event is kept.
func TestWrapUnencodableValues(t *testing.T) {
	var logged bytes.Buffer
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	type node struct{ Next *node }
	loop := &node{}
	loop.Next = loop
	raw := create(t, base, "s", map[string]any{"chan": make(chan int), "app:f": func() {}, "fine": 1})
	strange := []*session.Event{
		deltaEvent("nan", map[string]any{"nan": math.NaN(), "fine": 2}),
		deltaEvent("chan", map[string]any{"c": make(chan int), "deep": map[string]any{"f": func() {}}}),
		deltaEvent("loop", map[string]any{"loop": loop}),
		deltaEvent("key", map[string]any{"bad \xff": "v \xff"}),
		textEvent("utf8", "agent", "caf\xe9"),
		textEvent(strings.Repeat("long", 1000), "agent", "a long id"),
		textEvent("bad id \xff", "agent", "a bad id"),
		textEvent("", "agent", "no id"),
		textEvent("", "agent", "no id"),
		textEvent("twice", "agent", "once"),
		textEvent("twice", "agent", "and again"),
		{},
	}
	for i, e := range strange {
		e.Timestamp = timedEvent(i, "", "").Timestamp
		noError(t, base.AppendEvent(t.Context(), raw, e))
	}
	for range 2 {
		got := get(t, s, "s")
		equal(t, "events", got.Events().Len(), len(strange))
		equal(t, "text", got.Events().At(4).Content.Parts[0].Text, "caf\uFFFD")
		equal(t, "fine", stateOf(got)["fine"], any(2))
		equal(t, "nan", stateOf(got)["nan"], any("NaN"))
		equal(t, "words", got.Events().At(5).Content.Parts[0].Text, "a long id")
		equal(t, "words", got.Events().At(10).Content.Parts[0].Text, "and again")
		if _, ok := stateOf(got)["chan"].(string); !ok {
			t.Errorf("a channel is shown as %v", stateOf(got)["chan"])
		}
	}
	warnings := strings.Count(logged.String(), "level=WARN")
	if warnings < 4 || warnings > len(strange) {
		t.Errorf("%d warnings:\n%s", warnings, &logged)
	}
	r, err := s.List(t.Context(), &session.ListRequest{AppName: "app"})
	noError(t, err)
	equal(t, "listed", len(r.Sessions), 1)
	sess := get(t, s, "s")
	noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 9).WithState(patch.Keep)}, store.PatchOptions{})))
	equal(t, "events", get(t, wrap(t, base, adk.Options{}), "s").Events().Len(), len(strange)-9)
	// A patch does not apply to the wrong event if two events have the same id.
	_, err = s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(1, 1)}, store.PatchOptions{})
	if err == nil {
		equal(t, "events", get(t, s, "s").Events().At(0).Content.Parts[0].Text, "once")
	}
	wantError(t, s.AppendEvent(t.Context(), sess, deltaEvent("new", map[string]any{"nan": math.NaN()})), patch.ErrInvalid)
}

// Patches of a newer format version are skipped. New patches are then refused, because their author may not have
// seen the correct visible log.
func TestWrapNewerVersion(t *testing.T) {
	var logged bytes.Buffer
	base := session.InMemoryService()
	for name, said := range map[string]string{
		"version": `{"version":2,"patches":[]}`,
		"type":    `{"version":1,"patches":[{"patch":{"id":"p","patchType":"fancy"}}]}`,
		"text":    `what is this`,
		"patch":   `{"version":1,"patches":[{"patch":7}]}`,
	} {
		s := wrap(t, base, adk.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		logged.Reset()
		raw := create(t, base, name, nil)
		noError(t, base.AppendEvent(t.Context(), raw, timedEvent(1, "e1", "user")))
		e := &session.Event{ID: "c", Timestamp: timedEvent(2, "", "").Timestamp}
		e.CustomMetadata = map[string]any{"_patchlog": said}
		noError(t, base.AppendEvent(t.Context(), raw, e))
		sess := get(t, s, name)
		equal(t, "events", ids(sess), []string{"e1"})
		skipped, err := sess.(*adk.Session).View().Skipped()
		noError(t, err)
		equal(t, "skipped", skipped, []patch.Skip{{Seq: 2, Reason: patch.UnknownType}})
		wantError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})), fold.ErrUnknownPatch)
		noError(t, s.AppendEvent(t.Context(), sess, timedEvent(3, "e3", "user")))
		equal(t, "events", ids(get(t, s, name)), []string{"e1", "e3"})
		if n := strings.Count(logged.String(), "skipped"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, &logged)
		}
	}
}

// An event that carries an empty list of patches has no effect.
func TestWrapEmptyCarrier(t *testing.T) {
	base := &flakyService{renamesEvents: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	appendAll(t, s, sess, userMessages(3)...)
	e := &session.Event{ID: "c", Timestamp: timedEvent(3, "", "").Timestamp}
	e.CustomMetadata = map[string]any{"_patchlog": `{"version":1,"patches":[]}`}
	noError(t, base.AppendEvent(t.Context(), get(t, base, "s"), e))
	sess = get(t, s, "s")
	noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})))
	equal(t, "events", len(ids(get(t, s, "s"))), 2)
	equal(t, "skipped", get(t, s, "s").(*adk.Session).View().SkippedCount(), 0)
}

// Filtered reads and appends request only a few events of the base. If these events do not continue the cached log,
// all events are read.
func TestWrapRequestsFewEvents(t *testing.T) {
	base := &flakyService{}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	recent := func(n int) []string {
		r, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s", NumRecentEvents: n})
		noError(t, err)
		return ids(r.Session)
	}
	appendAll(t, s, sess, userMessages(50)...)
	if base.eventsRead > 50*8 {
		t.Errorf("50 appends read %d events", base.eventsRead)
	}
	base.eventsRead = 0
	equal(t, "events", recent(2), []string{"e48", "e49"})
	equal(t, "events that were read", base.eventsRead, 2)
	r, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s", After: timedEvent(47, "", "").Timestamp})
	noError(t, err)
	equal(t, "events", ids(r.Session), []string{"e47", "e48", "e49"})
	equal(t, "events that were read", base.eventsRead, 2+3)
	for i := range 3 {
		noError(t, base.AppendEvent(t.Context(), get(t, base, "s"), timedEvent(50+i, fmt.Sprint("e", 50+i), "user")))
	}
	equal(t, "events", recent(5), []string{"e48", "e49", "e50", "e51", "e52"})
	for i := range 9 {
		noError(t, base.AppendEvent(t.Context(), get(t, base, "s"), timedEvent(53+i, fmt.Sprint("e", 53+i), "user")))
	}
	equal(t, "events", recent(2), []string{"e60", "e61"})
	equal(t, "all", len(ids(get(t, s, "s"))), 62)
	noError(t, errOf(s.ApplyPatch(t.Context(), get(t, s, "s"), []*patch.PatchEvent{patch.NewSplice(59, 2)}, store.PatchOptions{})))
	equal(t, "visible events", recent(2), []string{"e58", "e61"})
}

// A value that the process has appended keeps its Go type, even if other readers read the session.
func TestWrapKeepsGoTypes(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		value := map[string]any{"int": 7, "bytes": []byte("b"), "time": timedEvent(1, "", "").Timestamp}
		noError(t, s.AppendEvent(t.Context(), sess, deltaEvent("e", value)))
		noError(t, base.AppendEvent(t.Context(), get(t, base, "s"), textEvent("bare", "user", "x")))
		for range 2 {
			equal(t, "another reader", stateOf(get(t, s, "s")), value)
			noError(t, s.AppendEvent(t.Context(), sess, textEvent("", "user", "x")))
			equal(t, "the appender", stateOf(sess), value)
		}
	})
}

// Patches work if the base assigns its own ids to events, like Vertex AI.
func TestWrapRenamedEvents(t *testing.T) {
	base := &flakyService{renamesEvents: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	appendAll(t, s, sess, userMessages(4)...)
	equal(t, "own ids but for the last", ids(sess), []string{"own-0", "own-1", "own-2", "e3"})
	// The author of the patch saw an id that the base has changed, so the patch is a conflict.
	wantError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(1, 3)}, store.PatchOptions{})), store.ErrConflict)
	again := get(t, s, "s")
	equal(t, "ids", ids(again), []string{"own-0", "own-1", "own-2", "own-3"})
	noError(t, errOf(s.ApplyPatch(t.Context(), again, []*patch.PatchEvent{patch.NewSplice(1, 2)}, store.PatchOptions{})))
	equal(t, "ids", ids(get(t, s, "s")), []string{"own-0", "own-3"})
	equal(t, "ids", ids(get(t, wrap(t, base, adk.Options{}), "s")), []string{"own-0", "own-3"})
	noError(t, s.AppendEvent(t.Context(), sess, timedEvent(5, "e5", "user")))
	equal(t, "ids", ids(sess), []string{"own-0", "own-3", "e5"})
	base.failures = []failure{failAfter}
	wantError(t, s.AppendEvent(t.Context(), sess, timedEvent(6, "e6", "user")), store.ErrOutcomeUnknown)
	equal(t, "events of the base", len(base.ids()), 7)
}

// Sessions are compacted even if the base assigns its own ids to events.
func TestWrapCompactsRenamedEvents(t *testing.T) {
	base := &flakyService{renamesEvents: true}
	s := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})}})
	sess := create(t, s, "s", nil)
	for i := range 20 {
		e := timedEvent(i, fmt.Sprint("e", i), []string{"user", "agent"}[i%2])
		e.InvocationID = fmt.Sprint("i", i/2)
		e.Content.Parts[0].Text = strings.Repeat("it is long ", 40)
		noError(t, s.AppendEvent(t.Context(), sess, e))
		s.WaitForCompaction(t)
	}
	if n := get(t, s, "s").Events().Len(); n > 10 {
		t.Errorf("%d events are visible", n)
	}
	equal(t, "events of another", ids(get(t, wrap(t, base, adk.Options{}), "s")), ids(get(t, s, "s")))
}

// A patch applies only to the events that its author saw. It is a conflict if the base has changed their order, or
// if another writer has logged a patch.
func TestWrapPatchAfterReordering(t *testing.T) {
	base := &flakyService{sortsByTime: true}
	s, other := wrap(t, base, adk.Options{Logger: discardLogger()}), wrap(t, base, adk.Options{Logger: discardLogger()})
	one := create(t, s, "s", nil)
	appendAll(t, s, one, timedEvent(1, "e1", "user"), timedEvent(3, "e3", "user"))
	noError(t, base.AppendEvent(t.Context(), get(t, base, "s"), timedEvent(2, "e2", "user")))
	all := func(sess session.Session) {
		t.Helper()
		wantError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(1, 1)}, store.PatchOptions{})), store.ErrConflict)
		wantError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(1, 1).WithBase(sess.(*adk.Session).View().PatchSeq())}, store.PatchOptions{})), store.ErrConflict)
		wantError(t, errOf(s.Rewind(t.Context(), sess, "inv-e3")), store.ErrConflict)
	}
	all(one)
	equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2", "e3"})
	done, err := s.ApplyPatch(t.Context(), get(t, s, "s"), []*patch.PatchEvent{patch.NewSplice(1, 1)}, store.PatchOptions{})
	noError(t, err)
	equal(t, "events", ids(get(t, other, "s")), []string{"e1", "e3"})
	one = get(t, s, "s")
	noError(t, errOf(other.ApplyPatch(t.Context(), get(t, other, "s"), []*patch.PatchEvent{patch.NewPin("e3")}, store.PatchOptions{})))
	all(one)
	wantError(t, errOf(s.Revert(t.Context(), one, done.Records[0].ID())), store.ErrConflict)
}

// Search finds events at their new places after the base has changed the order of events.
func TestWrapSearchAfterReordering(t *testing.T) {
	base := &flakyService{sortsByTime: true}
	s := wrap(t, base, adk.Options{Logger: discardLogger()})
	eventAbout := func(second int, words string) *session.Event {
		e := timedEvent(second, words, "user")
		e.Content.Parts[0].Text = words
		return e
	}
	appendAll(t, s, create(t, s, "s", nil), eventAbout(1, "apples"), eventAbout(3, "cherries"))
	for n, want := range []string{"cherries 2", "plums 2"} {
		r, err := s.Memory().SearchMemory(t.Context(), &memory.SearchRequest{AppName: "app", UserID: "user", Query: want})
		noError(t, err)
		equal(t, "found", fmt.Sprint(r.Memories[0].ID, " ", r.Memories[0].CustomMetadata["record"]), want)
		appendAll(t, base, get(t, base, "s"), eventAbout(2+n, []string{"plums", "figs"}[n]))
	}
}

// If two patches concern the same events, the patch that is first in the base applies. The author of the other
// patch gets a conflict.
func TestWrapConcurrentPatches(t *testing.T) {
	base := &flakyService{}
	s, other := wrap(t, base, adk.Options{Logger: discardLogger()}), wrap(t, base, adk.Options{Logger: discardLogger()})
	sess := create(t, s, "s", nil)
	noError(t, s.AppendEvent(t.Context(), sess, timedEvent(1, "e1", "user")))
	by := func(id string) *patch.PatchEvent {
		e, err := adk.NewEvent(timedEvent(2, id, "user"))
		noError(t, err)
		return patch.NewSplice(0, 1, e)
	}
	base.beforeAppend = func() {
		noError(t, errOf(other.ApplyPatch(t.Context(), get(t, other, "s"), []*patch.PatchEvent{by("theirs")}, store.PatchOptions{})))
	}
	wantError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{by("ours")}, store.PatchOptions{})), store.ErrConflict)
	for _, s := range []session.Service{s, other, wrap(t, base, adk.Options{Logger: discardLogger()})} {
		equal(t, "events", ids(get(t, s, "s")), []string{"theirs"})
	}
}

// A migration of a wrapped session includes its patches. The store shows the same session as the wrapper, and its
// patches can be reverted. A patch that cannot be translated is reported at each migration.
func TestMigrateWrapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.sqlite")
	s := wrap(t, newSQLiteService(t, path), adk.Options{Logger: discardLogger()})
	sess := create(t, s, "s", map[string]any{"k": "initial", "user:u": "x"})
	say := func(n int) {
		e := timedEvent(n, fmt.Sprint("e", n), "agent")
		e.Actions.StateDelta = map[string]any{"k": fmt.Sprint("v", n)}
		noError(t, s.AppendEvent(t.Context(), sess, e))
	}
	target := inMemoryStore(t)
	run := func() migrate.Result {
		_, results := migrateAll(t, target, openSource(t, location{driver: "sqlite", dsn: path}, migrate.SQLite), migrate.Options{})
		return results[testKey.String()]
	}
	same := func(status migrate.Status) fold.View {
		t.Helper()
		r := run()
		noError(t, r.Err)
		equal(t, "status", r.Status, status)
		migrated, err := target.View(t.Context(), testKey)
		noError(t, err)
		want := get(t, s, "s").(*adk.Session).View()
		equal(t, "visible", idsOf(migrated.Events()), idsOf(want.Events()))
		equal(t, "pinned", migrated.IsPinned(0), want.IsPinned(0))
		if !maps.EqualFunc(maps.Collect(migrated.Values()), maps.Collect(want.Values()), patch.Value.Equal) {
			t.Errorf("the state is %v, want %v", migrated.State(), want.State())
		}
		return migrated
	}
	for n := range 5 {
		say(n)
	}
	cut, err := s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(3, 2)}, store.PatchOptions{})
	noError(t, err)
	noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewPin("e0")}, store.PatchOptions{})))
	same(migrate.Created)
	same(migrate.Unchanged)
	say(5)
	noError(t, errOf(s.Rewind(t.Context(), sess, "inv-e2")))
	say(6)
	same(migrate.Extended)
	_, err = s.Revert(t.Context(), sess, cut.Records[0].ID())
	if err != nil {
		wantError(t, err, fold.ErrBlocked)
	}
	same(map[bool]migrate.Status{true: migrate.Extended, false: migrate.Unchanged}[err == nil])

	// This patch names events that the base does not have.
	late := timedEvent(9, "late", "user")
	late.CustomMetadata = map[string]any{"_patchlog": `{"version":1,"patches":[{"patch":{"id":"p","patchType":"splice","start":0,"count":1},"place":{"events":["gone"]}}]}`}
	late.Content = nil
	noError(t, newSQLiteService(t, path).AppendEvent(t.Context(), get(t, newSQLiteService(t, path), "s"), late))
	for range 3 {
		var left *migrate.UntranslatedError
		if r := run(); !errors.As(r.Err, &left) || len(left.Events) != 1 || left.Events[0].Event != "late" {
			t.Errorf("the error is %v", r.Err)
		}
		sess = get(t, s, "s")
		say(10)
	}
}

// A handle of a deleted session is refused, even if a new session has the same id. It does not matter which service
// created and deleted the sessions, or whether the wrapper has read the new session. The new session does not have
// the old session's state.
func TestWrapDeletedSessions(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		for n, by := range [][3]session.Service{{s, s, s}, {s, base, base}, {s, base, s}, {base, s, s}, {base, base, s}} {
			id := fmt.Sprint("s", n)
			create(t, by[0], id, map[string]any{"k": "old"})
			old := get(t, s, id)
			appendAll(t, s, old, timedEvent(1, "e1", "user"))
			del := &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: id}
			noError(t, by[1].Delete(t.Context(), del))
			refused := func() {
				t.Helper()
				for _, call := range handleCalls(func() *adk.Service { return s }) {
					wantError(t, call(t.Context(), old), store.ErrNotFound)
				}
			}
			refused()
			raw := create(t, by[2], id, map[string]any{"k": "new"})
			if by[2] == base { // a session that was created in the base has no creation id, so its first event or its creation time shows that it is new
				appendAll(t, base, raw, timedEvent(3, "other", "user"))
			}
			refused()
			now := get(t, s, id)
			equal(t, "state", stateOf(now), map[string]any{"k": "new"})
			refused()
			before := ids(now)
			appendAll(t, s, get(t, wrap(t, base, adk.Options{}), id), timedEvent(4, "e4", "user")) // append through another wrapper, which reads the session anew
			equal(t, "events", ids(get(t, s, id)), append(before, "e4"))
			wantError(t, errOf(s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: id})), store.ErrExists)
			noError(t, s.Delete(t.Context(), del))
			noError(t, s.Delete(t.Context(), del))
		}
	})
}

// A handle of an empty session that was created without the wrapper cannot append to a later session with the same
// id.
func TestWrapEmptySessionThatIsReplaced(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		create(t, base, "s", nil)
		before := get(t, s, "s")
		other := get(t, wrap(t, base, adk.Options{}), "s")
		time.Sleep(time.Millisecond) // some bases do not store smaller differences of times
		noError(t, base.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
		create(t, base, "s", nil)
		wantError(t, s.AppendEvent(t.Context(), before, textEvent("e1", "user", "x")), store.ErrNotFound)
		wantError(t, errOf(s.ApplyPatch(t.Context(), before, []*patch.PatchEvent{patch.NewSplice(0, 0, summaryEvent(t, "x"))}, store.PatchOptions{})), store.ErrNotFound)
		wantError(t, wrap(t, base, adk.Options{}).AppendEvent(t.Context(), other, textEvent("e1", "user", "x")), store.ErrNotFound)
		now, again := get(t, s, "s"), get(t, s, "s")
		noError(t, s.AppendEvent(t.Context(), now, textEvent("e1", "user", "x")))
		noError(t, s.AppendEvent(t.Context(), again, textEvent("e2", "user", "x")))
		equal(t, "events", len(ids(get(t, s, "s"))), 2)
	})
}
