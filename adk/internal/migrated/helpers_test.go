package migrated

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgtest.Options{NoSync: true})) }

// engine is a SQL engine that ADK's services run on.
type engine struct {
	name    string
	dialect migrate.Dialect
	checks  string // how many cases are drawn
	// fresh makes an empty database, and returns how to open it.
	fresh func(t testing.TB) location
}

// location is a database of ADK's.
type location struct {
	driver, dsn string
	gorm        func() gorm.Dialector
}

var engines = []engine{
	{"SQLite", migrate.SQLite, "30", func(t testing.TB) location {
		dir, err := os.MkdirTemp("", "migrated")
		no(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path := filepath.Join(dir, "adk.db")
		return location{"sqlite", "file:" + path + "?mode=ro", func() gorm.Dialector { return sqlite.Open(path) }}
	}},
	{"PostgreSQL", migrate.PostgreSQL, "8", func(t testing.TB) location {
		dsn := pgtest.New(t)
		return location{"pgx", dsn, func() gorm.Dialector { return postgres.Open(dsn) }}
	}},
}

// service is ADK's own on the database.
func (l location) service(t testing.TB) session.Service {
	t.Helper()
	s, err := database.NewSessionService(l.gorm(), &gorm.Config{Logger: logger.Discard})
	no(t, err)
	no(t, database.AutoMigrate(s))
	return s
}

// open opens the database as a migration reads it.
func (l location) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(l.driver, l.dsn)
	no(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// exec runs statements on the database.
func (l location) exec(t testing.TB, statements ...string) {
	t.Helper()
	db, err := sql.Open(l.driver, strings.TrimSuffix(l.dsn, "?mode=ro"))
	no(t, err)
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// source opens the database as a source.
func source(t testing.TB, l location, dialect migrate.Dialect) migrate.Source {
	t.Helper()
	s, err := migrate.OpenSQL(t.Context(), l.open(t), dialect, migrate.SQLOptions{})
	no(t, err)
	return s
}

func memory(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.OpenMemory(store.Options{})
	no(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// run migrates, and returns the results by key.
func run(t testing.TB, target *store.Store, from migrate.Source, opts migrate.Options) (migrate.Report, map[string]migrate.Result) {
	t.Helper()
	results := map[string]migrate.Result{}
	opts.Session = func(r migrate.Result) error {
		results[r.Key.String()] = r
		return nil
	}
	report, err := migrate.Run(t.Context(), target, from, opts)
	no(t, err)
	return report, results
}

// asADK is what package adk gives of a store.
func asADK(t testing.TB, s *store.Store) session.Service {
	t.Helper()
	service, err := adk.NewService(s, adk.Options{})
	no(t, err)
	t.Cleanup(func() { _ = service.Close(context.Background()) })
	return service
}

// plain is a value as its JSON says, numbers as float64.
func plain(t testing.TB, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	no(t, err)
	var out any
	no(t, json.Unmarshal(text, &out))
	return out
}

// stateOf returns a session's state.
func stateOf(t testing.TB, s session.Session) any {
	state := map[string]any{}
	for k, v := range s.State().All() {
		state[k] = v
	}
	return plain(t, state)
}

// eventsOf returns a session's events, those with equal times by their ids, without the
// event of a migration that sets state.
func eventsOf(t testing.TB, s session.Session) (events []any) {
	var all []*session.Event
	for e := range s.Events().All() {
		if own, ok := e.CustomMetadata["patchlog"].(map[string]any); !ok || own["migration"] != "state" {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *session.Event) int {
		if c := a.Timestamp.Compare(b.Timestamp); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	for _, e := range all {
		e.Timestamp = e.Timestamp.UTC()
		events = append(events, plain(t, e))
	}
	return events
}

// equalServices fails if one service's sessions of the apps are not the other's.
func equalServices(t testing.TB, want, got session.Service, apps ...string) {
	t.Helper()
	for _, app := range apps {
		a, err := want.List(t.Context(), &session.ListRequest{AppName: app})
		no(t, err)
		b, err := got.List(t.Context(), &session.ListRequest{AppName: app})
		no(t, err)
		if len(a.Sessions) != len(b.Sessions) {
			t.Fatalf("app %s: %d sessions, want %d", app, len(b.Sessions), len(a.Sessions))
		}
		for _, s := range a.Sessions {
			of := fmt.Sprintf("%s/%s/%s", s.AppName(), s.UserID(), s.ID())
			request := &session.GetRequest{AppName: s.AppName(), UserID: s.UserID(), SessionID: s.ID()}
			w, err := want.Get(t.Context(), request)
			no(t, err)
			g, err := got.Get(t.Context(), request)
			no(t, err)
			if x, y := stateOf(t, w.Session), stateOf(t, g.Session); !reflect.DeepEqual(x, y) {
				t.Fatalf("%s: state %v\nwant %v", of, y, x)
			}
			x, y := eventsOf(t, w.Session), eventsOf(t, g.Session)
			if len(x) != len(y) {
				t.Fatalf("%s: %d events, want %d", of, len(y), len(x))
			}
			for i := range x {
				if !reflect.DeepEqual(x[i], y[i]) {
					t.Fatalf("%s, event %d:\n%v\nwant\n%v", of, i, y[i], x[i])
				}
			}
		}
	}
}

func no(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
