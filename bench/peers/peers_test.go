package peers

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"google.golang.org/genai"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/store"
)

// peer is a session service that can be closed and opened again on the same file.
type peer struct {
	name string
	// open returns the service and a function that closes it. A service without a file is empty each time. If fast is
	// set, writes are not durable, so that a test can fill a file quickly.
	open func(tb testing.TB, dir string, fast bool) (session.Service, func())
	kept bool
}

var all = []peer{
	{name: "inmemory", open: func(testing.TB, string, bool) (session.Service, func()) {
		return session.InMemoryService(), func() {}
	}},
	{name: "sqlite", kept: true, open: openSQLite(false)},
	{name: "sqlite-wal", kept: true, open: openSQLite(true)},
	{name: "patchlog", kept: true, open: openPatchlog},
}

func openPatchlog(tb testing.TB, dir string, fast bool) (session.Service, func()) {
	tb.Helper()
	s, err := store.Open(filepath.Join(dir, "sessions.db"), store.Options{NoSync: fast})
	no(tb, err)
	svc, err := adk.NewService(s, adk.Options{})
	no(tb, err)
	return svc, func() { no(tb, s.Close()) }
}

// openSQLite returns an open function for ADK's SQL service on SQLite with gorm's defaults, with one exception.
// Transactions take the lock when they begin, because concurrent writers would fail otherwise. If tuned is set, the
// service uses a write-ahead log and one connection.
func openSQLite(tuned bool) func(tb testing.TB, dir string, fast bool) (session.Service, func()) {
	return func(tb testing.TB, dir string, fast bool) (session.Service, func()) {
		tb.Helper()
		journal, synchronous := "delete", "full"
		if tuned {
			journal = "wal"
		}
		if fast {
			synchronous = "off"
		}
		const form = "%s?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(%s)&_pragma=synchronous(%s)"
		db, err := sql.Open(sqlite.DriverName, fmt.Sprintf(form, filepath.Join(dir, "sessions.db"), journal, synchronous))
		no(tb, err)
		if tuned {
			db.SetMaxOpenConns(1)
		}
		svc, err := database.NewSessionService(sqlite.Dialector{Conn: db}, &gorm.Config{
			Logger: logger.Default.LogMode(logger.Silent),
		})
		no(tb, err)
		no(tb, database.AutoMigrate(svc))
		return svc, func() { no(tb, db.Close()) }
	}
}

// event returns an event of about 600 bytes that a model wrote and that changes the state.
func event(i int) *session.Event {
	return &session.Event{
		ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), InvocationID: fmt.Sprint("inv", i/4), Author: "agent",
		Timestamp: time.Now(),
		Actions:   session.EventActions{StateDelta: map[string]any{fmt.Sprint("key", i%20): i}},
		LLMResponse: model.LLMResponse{
			Content:       genai.NewContentFromText(strings.Repeat("x", 280), "model"),
			UsageMetadata: &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: int32(i), TotalTokenCount: int32(i) + 70},
		},
	}
}

func create(tb testing.TB, s session.Service, id string) session.Session {
	tb.Helper()
	r, err := s.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "user", SessionID: id})
	no(tb, err)
	return r.Session
}

func get(tb testing.TB, s session.Service, id string) session.Session {
	tb.Helper()
	r, err := s.Get(ctx, &session.GetRequest{AppName: "app", UserID: "user", SessionID: id})
	no(tb, err)
	return r.Session
}

// fill creates a session with n events.
func fill(tb testing.TB, s session.Service, id string, n int) {
	tb.Helper()
	sess := create(tb, s, id)
	for i := range n {
		no(tb, s.AppendEvent(ctx, sess, event(i)))
	}
}

// filled opens a service that has a session "s" with n events.
func (p peer) filled(tb testing.TB, dir string, n int) (session.Service, func()) {
	tb.Helper()
	s, done := p.open(tb, dir, true)
	fill(tb, s, "s", n)
	if !p.kept {
		return s, done
	}
	done()
	return p.open(tb, dir, false)
}

func TestPeers(t *testing.T) {
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			s, done := p.filled(t, dir, 20)
			defer func() { done() }()
			for range 2 {
				checkFilled(t, get(t, s, "s"))
				if p.kept {
					done()
					s, done = p.open(t, dir, false)
				}
			}
		})
	}
}

func checkFilled(t *testing.T, sess session.Session) {
	t.Helper()
	readAll(t, sess, 20)
	if v, err := sess.State().Get("key7"); err != nil || fmt.Sprint(v) != "7" {
		t.Fatalf("key7 is %v, %v", v, err)
	}
}

func no(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
