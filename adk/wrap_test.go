package adk_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"google.golang.org/genai"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/foreign"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestWrapRefuses(t *testing.T) {
	var none *shaky
	for name, base := range map[string]session.Service{"nil": nil, "a nil pointer": none, "a service of its own": inMemory(t)} {
		if _, err := adk.Wrap(base, adk.Options{}); err == nil {
			t.Errorf("%s was wrapped", name)
		} else {
			fails(t, err, patch.ErrInvalid)
		}
	}
	_, err := adk.Wrap(session.InMemoryService(), adk.Options{CompactionWorker: compaction.WorkerOptions{Parallel: -1}})
	fails(t, err, patch.ErrInvalid)
}

// timed is an event that says something at a time.
func timed(n int, id, author string) *session.Event {
	e := text(id, author, "this is "+id)
	e.Timestamp = time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC)
	return e
}

// A patch is one event of the base, without content, which says in words what it removes.
func TestWrapLeavesAnAuditLog(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", map[string]any{"k": "initial", "app:a": "x"})
		for i := range 5 {
			e := timed(i, fmt.Sprint("e", i), "agent")
			e.Actions.StateDelta = map[string]any{"k": fmt.Sprint("leak ", i), fmt.Sprint("k", i): "v"}
			no(t, s.AppendEvent(t.Context(), sess, e))
		}
		replacement, err := patch.NewEvent(patch.Fields{
			ID: "instead", Author: "agent", Content: patch.Text("model", "instead"),
			Actions: patch.Actions{StateDelta: map[string]any{"user:u": "shared", "own": "set"}},
		})
		no(t, err)
		done, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(1, 4, replacement).WithID("cut"))
		no(t, err)
		equal(t, "id", done.Records[0].ID(), "cut")
		equal(t, "seq", done.Records[0].Seq, uint64(6))
		want := map[string]any{"k": "leak 0", "k0": "v", "own": "set", "app:a": "x", "user:u": "shared"}
		got := get(t, s, "s")
		equal(t, "visible", ids(got), []string{"e0", "instead"})
		equal(t, "state", stateOf(got), want)
		equal(t, "after the patch", ids(sess), []string{"e0", "instead"})
		equal(t, "time", got.LastUpdateTime().UTC(), timed(4, "", "").Timestamp)

		// A drop-cut of all gives back what the session began with.
		_, err = s.ApplyPatch(t.Context(), got, patch.NewSplice(0, 1))
		no(t, err)
		equal(t, "state", stateOf(get(t, s, "s")), map[string]any{"k": "initial", "own": "set", "app:a": "x", "user:u": "shared"})
		_, err = s.Revert(t.Context(), got, "cut")
		no(t, err)
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
			if e.Content != nil || e.Author != "user" || !e.Timestamp.After(timed(4, "", "").Timestamp) {
				t.Errorf("%+v", e)
			}
			if _, ok := e.CustomMetadata["_patchlog"].(string); !ok {
				t.Errorf("%T", e.CustomMetadata["_patchlog"])
			}
		}
		// Someone else who wraps it sees the same.
		equal(t, "visible", ids(get(t, wrap(t, base, adk.Options{}), "s")), []string{"e1", "e2", "e3", "e4"})
		equal(t, "state", stateOf(get(t, wrap(t, base, adk.Options{}), "s")), stateOf(get(t, s, "s")))
	})
}

// A session begun without the wrapper is gone on with, and read again without it: a runner
// gets the same either way.
func TestWrapInTheMiddle(t *testing.T) {
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for _, b := range bases {
		for _, none := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, none %v", b.name, none), func(t *testing.T) {
				base, alone := b.make(t), b.make(t)
				wrapped := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})}})
				turn := func(on session.Service, n int) string {
					var said strings.Builder
					cfg := llmagent.Config{Name: "assistant", Model: counter{}}
					if none {
						cfg.IncludeContents = llmagent.IncludeContentsNone
					}
					a, err := llmagent.New(cfg)
					no(t, err)
					r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: on, AutoCreateSession: true})
					no(t, err)
					for e, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText(fmt.Sprintf("question %d", n), "user"), agent.RunConfig{}) {
						no(t, err)
						said.WriteString(e.Content.Parts[0].Text)
					}
					return said.String()
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
					wrapped.Settle(t)
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

// What a compaction says of itself is there in ADK's terms too.
func TestWrapRecordsCompaction(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, _ *adk.Service) {
		s := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 3, Summarizer: adk.Summarizer(shortener{})}})
		sess := create(t, s, "s", nil)
		for i := range 8 {
			e := timed(i, fmt.Sprint("e", i), []string{"user", "agent"}[i%2])
			e.InvocationID = fmt.Sprint("i", i/2)
			e.Content.Parts[0].Text = strings.Repeat("it is long ", 40)
			no(t, s.AppendEvent(t.Context(), sess, e))
		}
		s.Settle(t)
		no(t, s.Close(context.Background()))
		var records int
		for e := range get(t, base, "s").Events().All() {
			p, err := adk.NewEvent(e)
			no(t, err)
			c, ok := foreign.CompactionOf(p)
			if !ok {
				continue
			}
			records++
			at := func(n int) float64 { return float64(timed(n, "", "").Timestamp.Unix()) }
			if c.StartTimestamp != at(0) || c.EndTimestamp < at(1) || c.EndTimestamp >= at(7) || c.CompactedContent.IsZero() {
				t.Errorf("%+v", c)
			}
			if figures, ok := e.CustomMetadata["patchlog"].(map[string]any); !ok || figures["tokensBefore"] == nil {
				t.Errorf("figures %v", e.CustomMetadata["patchlog"])
			}
			if record := e.CustomMetadata["_adk_compaction"].(map[string]any); len(record) > 4 {
				t.Errorf("%v", record)
			}
		}
		equal(t, "records", records, 1)
	})
}

func TestWrapStateThatBeganWithoutIt(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		raw := create(t, base, "s", map[string]any{"kept": "v", "set": "before"})
		e := delta("e", map[string]any{"set": "after", "new": "x"})
		e.Timestamp = timed(1, "", "").Timestamp
		no(t, base.AppendEvent(t.Context(), raw, e))
		sess := get(t, s, "s")
		equal(t, "state", stateOf(sess), map[string]any{"kept": "v", "set": "after", "new": "x"})
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		no(t, err)
		// What it was before an event set it, nobody has recorded.
		equal(t, "state", stateOf(sess), map[string]any{"kept": "v"})
		equal(t, "state", stateOf(get(t, s, "s")), map[string]any{"kept": "v"})
	})
}

// The key under which the initial state is kept is in nobody's way.
func TestWrapReservesAKey(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", map[string]any{"k": "v"})
		equal(t, "state", stateOf(sess), map[string]any{"k": "v"})
		r, err := s.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
		no(t, err)
		equal(t, "listed state", stateOf(r.Sessions[0]), map[string]any{"k": "v"})
		create(t, s, "empty", nil)
		equal(t, "state in the base", stateOf(get(t, base, "empty")), map[string]any{})
		_, err = s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", State: map[string]any{"_patchlog_initial": 1}})
		fails(t, err, patch.ErrInvalid)
		fails(t, s.AppendEvent(t.Context(), sess, delta("e", map[string]any{"_patchlog_initial": 1})), patch.ErrInvalid)
		forged := &session.Event{ID: "forged"}
		forged.CustomMetadata = map[string]any{"_patchlog": "{}"}
		fails(t, s.AppendEvent(t.Context(), sess, forged), patch.ErrInvalid)
		equal(t, "events", ids(sess), []string{})
	})
}

// Someone appends without the wrapper; a session that was got before goes on.
func TestWrapStale(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
		raw := get(t, base, "s")
		no(t, base.AppendEvent(t.Context(), raw, timed(2, "e2", "agent")))
		no(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user")))
		equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2", "e3"})
		raw = get(t, base, "s")
		no(t, base.AppendEvent(t.Context(), raw, timed(4, "e4", "agent")))
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		if len(ids(sess)) == 2 { // a base that refuses no stale session did not tell of e2
			fails(t, err, store.ErrConflict)
			sess = get(t, s, "s")
			_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		}
		no(t, err)
		equal(t, "events", ids(sess), []string{"e2", "e3", "e4"})
		// Its own patch makes a session stale that was got without it.
		no(t, s.AppendEvent(t.Context(), sess, timed(5, "e5", "agent")))
		equal(t, "events", ids(get(t, s, "s")), []string{"e2", "e3", "e4", "e5"})
	})
}

func TestWrapDeletedSessions(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		for name, deleter := range map[string]session.Service{"through it": s, "in the base": base} {
			sess := create(t, s, "s", nil)
			no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
			del := &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}
			no(t, deleter.Delete(t.Context(), del))
			fails(t, s.AppendEvent(t.Context(), sess, timed(2, "e2", "user")), store.ErrNotFound)
			_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
			fails(t, err, store.ErrNotFound)
			for _, err := range s.RawEvents(t.Context(), sess, 1) {
				fails(t, err, store.ErrNotFound)
			}
			create(t, deleter, "s", nil)
			get(t, s, "s")
			fails(t, s.AppendEvent(t.Context(), sess, timed(2, "e2", "user")), store.ErrNotFound)
			_, err = s.ViewAt(t.Context(), sess, 0)
			fails(t, err, store.ErrNotFound)
			equal(t, name, ids(get(t, s, "s")), []string{})
			_, err = s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
			fails(t, err, store.ErrExists)
			no(t, s.Delete(t.Context(), del))
			no(t, s.Delete(t.Context(), del))
		}
	})
}

// A base that fails: what it says reaches the caller, who can try again.
func TestWrapFailingBase(t *testing.T) {
	base := &shaky{strict: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	base.down = true
	e := timed(1, "e1", "user")
	err := s.AppendEvent(t.Context(), sess, e)
	fails(t, err, errShaky)
	fails(t, err, store.ErrOutcomeUnknown)
	_, err = s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
	fails(t, err, errShaky)
	_, err = s.List(t.Context(), &session.ListRequest{AppName: "app"})
	fails(t, err, errShaky)
	fails(t, s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}), errShaky)
	_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
	fails(t, err, errShaky)
	_, err = s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s2"})
	fails(t, err, errShaky)
	base.down = false
	no(t, s.AppendEvent(t.Context(), sess, e))
	base.fails = []failing{before}
	err = s.AppendEvent(t.Context(), sess, timed(2, "e2", "user"))
	fails(t, err, errShaky)
	base.fails = []failing{afterward}
	no(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user")))
	equal(t, "events", ids(sess), []string{"e1", "e3"})
	no(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user"))) // a retry
	fails(t, s.AppendEvent(t.Context(), sess, timed(4, "e3", "agent")), store.ErrDuplicateID)
	equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e3"})
	// An append that fails for a reason of its own is not tried again.
	base.appends = 0
	base.fails = []failing{before, before}
	fails(t, s.AppendEvent(t.Context(), sess, timed(5, "e5", "user")), errShaky)
	equal(t, "tries", base.appends, 1)
	// One whose caller has gone may still be on its way.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	base.fails = []failing{before}
	fails(t, s.AppendEvent(ctx, sess, timed(6, "e6", "user")), store.ErrOutcomeUnknown)
	base.fails = []failing{afterward} // that one has landed can be seen
	no(t, s.AppendEvent(ctx, sess, timed(7, "e7", "user")))
	// A base that panics leaves nothing locked.
	func() {
		defer func() { _ = recover() }()
		base.fails = []failing{panics}
		_ = s.AppendEvent(t.Context(), sess, timed(8, "e8", "user"))
		t.Error("it did not panic")
	}()
	no(t, s.AppendEvent(t.Context(), sess, timed(9, "e9", "user")))
	equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e3", "e7", "e9"})
}

// listing lists a session that is gone.
type listing struct{ session.Service }

func (l listing) List(ctx context.Context, r *session.ListRequest) (*session.ListResponse, error) {
	out, err := l.Service.List(ctx, r)
	if err == nil && len(out.Sessions) == 2 {
		s := out.Sessions[0]
		err = l.Delete(ctx, &session.DeleteRequest{AppName: s.AppName(), UserID: s.UserID(), SessionID: s.ID()})
	}
	return out, err
}

// A session that is deleted while others are listed is none of those.
func TestWrapListsWhatIsThere(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, _ *adk.Service) {
		create(t, base, "a", nil)
		create(t, base, "b", nil)
		r, err := wrap(t, listing{base}, adk.Options{}).List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
		no(t, err)
		equal(t, "sessions", len(r.Sessions), 1)
	})
}

// A session that was got with a filter goes on from what that chose, also when the base gives
// events otherwise than it had them.
func TestWrapFilteredSessions(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 3 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	r, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s", NumRecentEvents: 2})
	no(t, err)
	equal(t, "events", ids(r.Session), []string{"e1", "e2"})
	no(t, base.AppendEvent(t.Context(), get(t, base, "s"), timed(3, "e3", "user")))
	no(t, s.AppendEvent(t.Context(), r.Session, timed(4, "e4", "user")))
	equal(t, "events", ids(r.Session), []string{"e1", "e2", "e4"})
	get(t, s, "s")
	no(t, s.AppendEvent(t.Context(), r.Session, timed(5, "e5", "user")))
	equal(t, "events", ids(r.Session), []string{"e1", "e2", "e3", "e4", "e5"})
	_, err = s.ApplyPatch(t.Context(), r.Session, patch.NewSplice(1, 3))
	no(t, err)
	equal(t, "events", ids(r.Session), []string{"e4", "e5"})
}

// What has content is said, whatever its metadata are.
func TestWrapShowsWhatHasContent(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		e := timed(1, "e", "user")
		e.CustomMetadata = map[string]any{"_patchlog": `{"version":1,"patches":[]}`}
		no(t, s.AppendEvent(t.Context(), sess, e))
		equal(t, "events", ids(get(t, s, "s")), []string{"e"})
	})
}

// A record of compaction stands for one summary.
func TestWrapRecordsOneSummary(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 3 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	summary := func(words string) *patch.Event {
		e, err := patch.NewEvent(patch.Fields{
			Author: "user", Content: patch.Text("user", words),
			Actions: patch.Actions{Compaction: &patch.EventCompaction{StartTimestamp: 1, EndTimestamp: 2, CompactedContent: patch.Text("model", words)}},
		})
		no(t, err)
		return e
	}
	for n, events := range [][]*patch.Event{{summary("a")}, {summary("a"), summary("b")}} {
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1, events...).WithState(patch.Keep))
		no(t, err)
		all := get(t, base, "s").Events()
		_, said := all.At(all.Len() - 1).CustomMetadata["_adk_compaction"]
		equal(t, "there is a record", said, n == 0)
	}
}

func TestWrapClosedDatabase(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "sessions.sqlite"))
	no(t, err)
	base, err := database.NewSessionService(&sqlite.Dialector{Conn: db}, &gorm.Config{Logger: logger.Discard})
	no(t, err)
	no(t, database.AutoMigrate(base))
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
	no(t, db.Close())
	for name, err := range map[string]error{
		"append": s.AppendEvent(t.Context(), sess, timed(2, "e2", "user")),
		"get": func() error {
			_, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
			return err
		}(),
		"list": func() error {
			_, err := s.List(t.Context(), &session.ListRequest{AppName: "app"})
			return err
		}(),
		"patch": func() error { _, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1)); return err }(),
	} {
		if err == nil {
			t.Errorf("%s succeeded", name)
		}
	}
	equal(t, "events", ids(sess), []string{"e1"})
}

// A service that gives events ids of its own, as Vertex AI does.
func TestWrapRenamedEvents(t *testing.T) {
	base := &shaky{rename: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 4 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	equal(t, "own ids", ids(sess), []string{"e0", "e1", "e2", "e3"})
	// What it was made from has other ids there.
	_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(1, 2))
	fails(t, err, store.ErrConflict)
	again := get(t, s, "s")
	equal(t, "ids", ids(again), []string{"own-0", "own-1", "own-2", "own-3"})
	_, err = s.ApplyPatch(t.Context(), again, patch.NewSplice(1, 2))
	no(t, err)
	equal(t, "ids", ids(get(t, s, "s")), []string{"own-0", "own-3"})
	equal(t, "ids", ids(get(t, wrap(t, base, adk.Options{}), "s")), []string{"own-0", "own-3"})
	no(t, s.AppendEvent(t.Context(), sess, timed(5, "e5", "user")))
	equal(t, "ids", ids(sess), []string{"own-0", "own-3", "e5"})
	base.fails = []failing{afterward}
	fails(t, s.AppendEvent(t.Context(), sess, timed(6, "e6", "user")), store.ErrOutcomeUnknown)
	equal(t, "events of the base", len(base.ids()), 7)
}

// Where events have other ids than they were appended with, sessions are compacted all the same.
func TestWrapCompactsRenamedEvents(t *testing.T) {
	base := &shaky{rename: true}
	s := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})}})
	sess := create(t, s, "s", nil)
	for i := range 20 {
		e := timed(i, fmt.Sprint("e", i), []string{"user", "agent"}[i%2])
		e.InvocationID = fmt.Sprint("i", i/2)
		e.Content.Parts[0].Text = strings.Repeat("it is long ", 40)
		no(t, s.AppendEvent(t.Context(), sess, e))
		s.Settle(t)
	}
	if n := get(t, s, "s").Events().Len(); n > 10 {
		t.Errorf("%d events are visible", n)
	}
	equal(t, "events of another", ids(get(t, wrap(t, base, adk.Options{}), "s")), ids(get(t, s, "s")))
}

// What JSON cannot carry is there as text, and nothing is lost for it.
func TestWrapStrangeValues(t *testing.T) {
	var logged bytes.Buffer
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	type node struct{ Next *node }
	loop := &node{}
	loop.Next = loop
	raw := create(t, base, "s", map[string]any{"chan": make(chan int), "app:f": func() {}, "fine": 1})
	strange := []*session.Event{
		delta("nan", map[string]any{"nan": math.NaN(), "fine": 2}),
		delta("chan", map[string]any{"c": make(chan int), "deep": map[string]any{"f": func() {}}}),
		delta("loop", map[string]any{"loop": loop}),
		delta("key", map[string]any{"bad \xff": "v \xff"}),
		text("utf8", "agent", "caf\xe9"),
		text(strings.Repeat("long", 1000), "agent", "a long id"),
		text("bad id \xff", "agent", "a bad id"),
		text("", "agent", "no id"),
		text("", "agent", "no id"),
		text("twice", "agent", "once"),
		text("twice", "agent", "and again"),
		{},
	}
	for i, e := range strange {
		e.Timestamp = timed(i, "", "").Timestamp
		no(t, base.AppendEvent(t.Context(), raw, e))
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
	no(t, err)
	equal(t, "listed", len(r.Sessions), 1)
	sess := get(t, s, "s")
	_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 9).WithState(patch.Keep))
	no(t, err)
	equal(t, "events", get(t, wrap(t, base, adk.Options{}), "s").Events().Len(), len(strange)-9)
	// Ids that are there twice do not say which is meant.
	_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(1, 1))
	if err == nil {
		equal(t, "events", get(t, s, "s").Events().At(0).Content.Parts[0].Text, "once")
	}
	fails(t, s.AppendEvent(t.Context(), sess, delta("new", map[string]any{"nan": math.NaN()})), patch.ErrInvalid)
}

// Patches of a newer version are left alone, and others are refused: what is visible may not
// be what their author saw.
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
		no(t, base.AppendEvent(t.Context(), raw, timed(1, "e1", "user")))
		e := &session.Event{ID: "c", Timestamp: timed(2, "", "").Timestamp}
		e.CustomMetadata = map[string]any{"_patchlog": said}
		no(t, base.AppendEvent(t.Context(), raw, e))
		sess := get(t, s, name)
		equal(t, "events", ids(sess), []string{"e1"})
		skipped, err := sess.(*adk.Session).View().Skipped()
		no(t, err)
		equal(t, "skipped", skipped, []patch.Skip{{Seq: 2, Reason: patch.UnknownType}})
		_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		fails(t, err, store.ErrUnknownPatch)
		no(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user")))
		equal(t, "events", ids(get(t, s, name)), []string{"e1", "e3"})
		if n := strings.Count(logged.String(), "skipped"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, &logged)
		}
	}
}

// Sessions that nobody uses are forgotten, and their locks with them.
func TestWrapForgets(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	var kept []session.Session
	for i := range 3000 {
		sess := create(t, s, fmt.Sprint("s", i), nil)
		if i < 10 {
			kept = append(kept, sess)
		}
	}
	for range 20 {
		runtime.GC()
		if s.Lines() <= adk.MaxLines+len(kept) {
			break
		}
		time.Sleep(10 * time.Millisecond) // cleanups run in a goroutine of their own
	}
	if n := s.Lines(); n > adk.MaxLines+len(kept) {
		t.Errorf("%d sessions are known", n)
	}
	for i, sess := range kept {
		no(t, s.AppendEvent(t.Context(), sess, text("e", "user", "x")))
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		no(t, err)
		equal(t, "events", get(t, s, fmt.Sprint("s", i)).Events().Len(), 0)
	}
}

// A read converts and folds what is new, and nothing else.
func TestWrapReadsWhatIsNew(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 3000 {
		no(t, s.AppendEvent(t.Context(), sess, text(fmt.Sprint("e", i), "user", "x")))
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

// Writers in one process do not hinder each other, whatever they do.
func TestWrapConcurrent(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, _ *adk.Service) {
		create(t, base, "s", nil)
		var wg sync.WaitGroup
		s := wrap(t, base, adk.Options{Logger: quiet()})
		for w := range 4 {
			wg.Go(func() {
				sess := get(t, s, "s")
				for i := range 10 {
					if err := s.AppendEvent(t.Context(), sess, timed(10*w+i, fmt.Sprintf("e%d-%d", w, i), "user")); err != nil {
						t.Error(err)
					}
					_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1).WithState(patch.Keep))
					if err != nil {
						sess = get(t, s, "s")
					}
					for range sess.Events().All() {
					}
				}
			})
		}
		wg.Wait()
		n := 0
		for e := range get(t, base, "s").Events().All() {
			if e.CustomMetadata["_patchlog"] == nil {
				n++
			}
		}
		equal(t, "events", n, 40)
		one, other := get(t, s, "s"), get(t, wrap(t, base, adk.Options{Logger: quiet()}), "s")
		a, b := ids(one), ids(other)
		slices.Sort(a)
		slices.Sort(b)
		if len(a) != len(b) {
			t.Errorf("one sees %d events, another %d", len(a), len(b))
		}
	})
}
