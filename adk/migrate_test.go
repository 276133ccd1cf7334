package adk_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/jsonschema-go/jsonschema"
	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver "pgx"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"google.golang.org/genai"
	pgdriver "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// engine is an SQL engine that ADK's session services support.
type engine struct {
	name    string
	dialect migrate.Dialect
	checks  string // number of generated test cases
	// newDatabase creates an empty database.
	newDatabase func(t *testing.T) location
}

type location struct {
	driver, dsn string
	gorm        func() gorm.Dialector
}

var engines = []engine{
	{"SQLite", migrate.SQLite, "30", func(t *testing.T) location {
		dir, err := os.MkdirTemp("", "migrated")
		noError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path := filepath.Join(dir, "adk.db")
		return location{"sqlite", "file:" + path + "?mode=ro", func() gorm.Dialector { return sqlite.Open(path) }}
	}},
	{"PostgreSQL", migrate.PostgreSQL, "8", func(t *testing.T) location {
		dsn := pgtest.New(t)
		return location{"pgx", dsn, func() gorm.Dialector { return pgdriver.Open(dsn) }}
	}},
}

func (l location) service(t *testing.T) session.Service {
	t.Helper()
	s, err := database.NewSessionService(l.gorm(), &gorm.Config{Logger: logger.Discard})
	noError(t, err)
	noError(t, database.AutoMigrate(s))
	return s
}

func (l location) open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open(l.driver, l.dsn)
	noError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (l location) exec(t *testing.T, statements ...string) {
	t.Helper()
	db, err := sql.Open(l.driver, strings.TrimSuffix(l.dsn, "?mode=ro"))
	noError(t, err)
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func openSource(t *testing.T, l location, dialect migrate.Dialect) migrate.Source {
	t.Helper()
	s, err := migrate.OpenSQL(t.Context(), l.open(t), dialect, migrate.SQLOptions{})
	noError(t, err)
	return s
}

func migrateAll(t *testing.T, target *store.Store, from migrate.Source, opts migrate.Options) (migrate.Report, map[string]migrate.Result) {
	t.Helper()
	results := map[string]migrate.Result{}
	opts.Session = func(r migrate.Result) error {
		results[r.Key.String()] = r
		return nil
	}
	report, err := migrate.Run(t.Context(), target, from, opts)
	noError(t, err)
	return report, results
}

// throughJSON encodes v as JSON and decodes it, which turns numbers into float64.
func throughJSON(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	noError(t, err)
	var out any
	noError(t, json.Unmarshal(text, &out))
	return out
}

// eventsOf returns the events of a migrated session, except the event with which the migration sets the state.
// Events with equal times are ordered by id.
func eventsOf(t *testing.T, s session.Session) (events []any) {
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
		events = append(events, throughJSON(t, e))
	}
	return events
}

func contentsOf(t *testing.T, s session.Service, apps ...string) map[string][]any {
	t.Helper()
	contents := map[string][]any{}
	for _, app := range apps {
		list, err := s.List(t.Context(), &session.ListRequest{AppName: app})
		noError(t, err)
		for _, of := range list.Sessions {
			r, err := s.Get(t.Context(), &session.GetRequest{AppName: app, UserID: of.UserID(), SessionID: of.ID()})
			noError(t, err)
			contents[app+"/"+of.UserID()+"/"+of.ID()] = append([]any{throughJSON(t, stateOf(r.Session))}, eventsOf(t, r.Session)...)
		}
	}
	return contents
}

func messageAt(id string, at time.Time) *session.Event {
	e := textEvent(id, "user", "text of "+id)
	e.Timestamp = at
	return e
}

func loggedIDs(t *testing.T, s *store.Store) string {
	t.Helper()
	var ids []string
	for r, err := range s.RawEvents(t.Context(), testKey, 1) {
		noError(t, err)
		ids = append(ids, r.ID())
	}
	return strings.Join(ids, " ")
}

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func TestLiterals(t *testing.T) {
	for _, e := range engines {
		l := e.newDatabase(t)
		theirs := l.service(t)
		numbers := map[string]any{"a": json.Number("1.0"), "b": json.Number("1e2"), "c": int64(1<<53 + 1), "d": uint64(1<<64 - 1), "e": 0.1}
		s := create(t, theirs, "s", map[string]any{"start": numbers, "app:n": numbers, "user:n": numbers})
		event := messageAt("e1", noon)
		event.Actions.StateDelta = map[string]any{"set": numbers}
		event.Content.Parts = []*genai.Part{{FunctionCall: &genai.FunctionCall{Name: "f", Args: map[string]any{"set": numbers}}}}
		noError(t, theirs.AppendEvent(t.Context(), s, event))
		_, err := theirs.Create(t.Context(), &session.CreateRequest{AppName: testKey.App, UserID: testKey.User, SessionID: "2", State: map[string]any{"start": numbers}})
		noError(t, err)
		target := inMemoryStore(t)
		_, results := migrateAll(t, target, openSource(t, l, e.dialect), migrate.Options{})
		if d := results[testKey.String()].Differences; len(d) > 0 {
			t.Errorf("%s: differences %v", e.name, d)
		}
		var log bytes.Buffer
		noError(t, target.Export(t.Context(), testKey, &log, store.ExportOptions{}))
		const exact = `{"a":1.0,"b":1e2,"c":9007199254740993,"d":18446744073709551615,"e":0.1}`
		column := exact
		if e.name == "PostgreSQL" {
			column = strings.Replace(exact, "1e2", "100", 1) // PostgreSQL's JSON column changes the literal
		}
		for _, want := range []string{`"stateDelta":{"set":` + exact, `"args":{"set":` + column} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: %s is not in\n%s", e.name, want, &log)
			}
		}
		// The initial state of session 2 comes from a JSON column, so it has the literals of the column.
		start, err := target.ViewAt(t.Context(), store.Key{App: testKey.App, User: testKey.User, Session: "2"}, 0)
		noError(t, err)
		initial, _ := start.Value("start")
		equal(t, "initial state", initial.String(), column)
		got, err := target.Get(t.Context(), testKey)
		noError(t, err)
		equal(t, "state", got.Values()["set"].String(), exact)
		for _, name := range []string{"app:n", "user:n"} { // the values of the shared scopes come from JSON columns too
			equal(t, name, got.Values()[name].String(), column)
		}
		equal(t, "sessions", contentsOf(t, newService(t, target), testKey.App), contentsOf(t, theirs, testKey.App))
	}
}

// Migrated events are ordered by time, and events with equal times in the order of their appends. A second migration
// adds the new events of a session.
func TestRepeatedMigration(t *testing.T) {
	for _, e := range engines {
		l := e.newDatabase(t)
		theirs := l.service(t)
		ctx := platform.WithTimeProvider(t.Context(), func() time.Time { return noon })
		created, err := theirs.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
		noError(t, err)
		var want []string
		target := inMemoryStore(t)
		for i, status := range []migrate.Status{migrate.Created, migrate.Extended, migrate.Extended} {
			for j := range 10 {
				id := fmt.Sprintf("%x", 97*(i*10+j)%64) // ids in no particular order
				want = append(want, id)
				noError(t, theirs.AppendEvent(t.Context(), created.Session, messageAt(id, noon.Add(time.Duration(i*10+j/3)*time.Microsecond))))
			}
			report, results := migrateAll(t, target, openSource(t, l, e.dialect), migrate.Options{})
			r := results[testKey.String()]
			equal(t, e.name, r.Status, status)
			equal(t, "added", report.Added, 10)
			equal(t, "ties are reported", strings.Contains(fmt.Sprint(r.Differences), "have the same time as the event before"), e.name == "PostgreSQL")
		}
		equal(t, "order", loggedIDs(t, target), strings.Join(want, " "))
		info, err := target.Info(t.Context(), testKey)
		noError(t, err)
		equal(t, "created", info.Created.UTC(), noon)
		equal(t, "sessions", contentsOf(t, newService(t, target), testKey.App), contentsOf(t, theirs, testKey.App))
	}
}

// The migrated session has the state that the table contains, even if the events do not explain it.
func TestStateOfTable(t *testing.T) {
	l := engines[0].newDatabase(t)
	theirs := l.service(t)
	s := create(t, theirs, "s", map[string]any{"a": 1})
	event := messageAt("e1", noon)
	event.Actions.StateDelta = map[string]any{"b": 1}
	noError(t, theirs.AppendEvent(t.Context(), s, event))
	l.exec(t, `UPDATE sessions SET state = '{"a":2,"b":[1.0],"c":null}'`)
	target := inMemoryStore(t)
	_, results := migrateAll(t, target, openSource(t, l, migrate.SQLite), migrate.Options{})
	equal(t, "differences", len(results[testKey.String()].Differences), 1)
	equal(t, "sessions", contentsOf(t, newService(t, target), testKey.App), contentsOf(t, theirs, testKey.App))
	got, err := target.Get(t.Context(), testKey)
	noError(t, err)
	equal(t, "b", got.Values()["b"].String(), "[1.0]")
}

// Tables of older ADK versions, which lack columns, can be migrated. Events without a session, and times in different
// time zones, are reported. A pickled row fails the migration of its session.
func TestOldTables(t *testing.T) {
	l := engines[0].newDatabase(t)
	theirs := l.service(t)
	s := create(t, theirs, "s", nil)
	noError(t, theirs.AppendEvent(t.Context(), s, messageAt("e1", noon)))
	for _, c := range []string{"routes_json", "output_json", "node_info_json", "requested_input_json", "isolation_scope"} {
		l.exec(t, "ALTER TABLE events DROP COLUMN "+c)
	}
	l.exec(t, `INSERT INTO events (id, app_name, user_id, session_id, actions, timestamp) VALUES ('x', 'app', 'user', 'gone', '{}', '2025-06-01')`)
	target := inMemoryStore(t)
	report, _ := migrateAll(t, target, openSource(t, l, migrate.SQLite), migrate.Options{})
	equal(t, "report", fmt.Sprint(report.Source), "[1 events belong to sessions that are missing from the table sessions; they are left out]")
	equal(t, "events", loggedIDs(t, target), "e1")

	row := func(id, at string) string {
		return fmt.Sprintf(`INSERT INTO events (id, app_name, user_id, session_id, author, actions, timestamp) VALUES ('%s', 'app', 'user', 's', 'user', '{}', %s)`, id, at)
	}
	l.exec(t, row("e2", `'2025-06-01 14:30:00+02:00'`), row("e3", `'2025-06-01 12:45:00+00:00'`), row("e4", `NULL`), row("e5", `'2025-06-01 12:46:00.5 +0000 UTC m=+0.1'`))
	target = inMemoryStore(t)
	_, results := migrateAll(t, target, openSource(t, l, migrate.SQLite), migrate.Options{})
	words := fmt.Sprint(results[testKey.String()].Differences)
	equal(t, "order", loggedIDs(t, target), "e4 e1 e2 e3 e5")
	equal(t, "the zones are reported", strings.Contains(words, "in several time zones"), true)
	equal(t, "the time is reported", strings.Contains(words, "1 of 5 events have no time"), true)

	l.exec(t, `UPDATE events SET actions = x'80049502' WHERE id = 'e3'`)
	_, results = migrateAll(t, inMemoryStore(t), openSource(t, l, migrate.SQLite), migrate.Options{})
	equal(t, "a pickled row", strings.Contains(fmt.Sprint(results[testKey.String()].Err), `event "e3": actions: pickled actions`), true)
	equal(t, "a pickled row", results[testKey.String()].Status, migrate.Failed)
	for column, words := range map[string]string{
		"content = '{'": `content: invalid: "{" is not JSON`, "content = x'ff'": "content", "timestamp = 'x'": "timestamp: invalid",
		"turn_complete = 'x'": "turn_complete: invalid", "custom_metadata = '[]'": "customMetadata", "timestamp = 1e99": "timestamp: invalid",
	} {
		l.exec(t, `UPDATE events SET actions = '{}'`, `UPDATE events SET `+column+` WHERE id = 'e3'`)
		_, results = migrateAll(t, inMemoryStore(t), openSource(t, l, migrate.SQLite), migrate.Options{})
		if r := results[testKey.String()]; r.Status != migrate.Failed || !strings.Contains(r.Err.Error(), words) || !strings.Contains(r.Err.Error(), `event "e3"`) {
			t.Errorf("%s: %s, %v", column, r.Status, r.Err)
		}
		l.exec(t, `UPDATE events SET content = NULL, author = 'a', timestamp = '2025-06-01', turn_complete = 1, custom_metadata = NULL`)
	}

	l.exec(t, `UPDATE events SET author = x'ff' WHERE id = 'e3'`)
	_, results = migrateAll(t, inMemoryStore(t), openSource(t, l, migrate.SQLite), migrate.Options{})
	equal(t, "text that is not Unicode", results[testKey.String()].Status, migrate.Created)
	equal(t, "it is reported", strings.Contains(fmt.Sprint(results[testKey.String()].Differences), "1 event with text that is not Unicode"), true)
}

// valueGenerator generates random Go values of any type. It leaves some fields of a struct zero.
type valueGenerator struct {
	t      *rapid.T
	noTemp bool // whether to generate no "temp:" keys
}

func (d *valueGenerator) n(most int) int { return rapid.IntRange(0, most).Draw(d.t, "n") }

func (d *valueGenerator) text() string {
	return rapid.SampledFrom([]string{"", "a", "b c", "<&>\u2028", "𝄞", "\x1b[1m", `"\`, "null", "temp"}).Draw(d.t, "text")
}

// leaf generates a value that has no fields or elements.
func (d *valueGenerator) leaf(v reflect.Value) bool {
	switch v.Interface().(type) {
	case time.Duration:
		v.SetInt(int64(d.n(5)) * 1234567890)
		return true
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2025, 2, 28, 23, 59, d.n(59), 1000*d.n(999999), time.UTC)))
		return true
	case jsonschema.Schema:
		v.Set(reflect.ValueOf(jsonschema.Schema{Type: "object", Title: d.text(), Required: []string{"b"}}))
		return true
	}
	if v.Type().String() == "civil.Date" { // ADK cannot read an incomplete civil.Date
		for i, n := range []int64{2025, 2, int64(1 + d.n(20))} {
			v.Field(i).SetInt(n)
		}
		return true
	}
	return setLeaf(v, d.text, func() int64 { return int64(d.n(100)) - 50 }, func() any { return d.any(2) })
}

// any generates a value for a field of type any.
func (d *valueGenerator) any(depth int) any {
	switch d.n(9) {
	case 0:
		return nil
	case 1:
		return d.n(1) == 0
	case 2:
		return d.n(5) - 2
	case 3:
		return int64(1<<53 + 1)
	case 4:
		return rapid.SampledFrom([]json.Number{"1.0", "1e2", "-0", "0.1", "9007199254740993", "1E-7"}).Draw(d.t, "literal")
	case 5:
		return float64(d.n(9)) / 4
	case 6:
		if depth > 0 {
			return map[string]any{"a": d.any(depth - 1), d.text(): d.any(depth - 1)}
		}
	case 7:
		if depth > 0 {
			return []any{d.any(depth - 1), d.any(0)}
		}
	}
	return d.text()
}

var stateKeys = []string{"a", "b", "c d", "app:x", "app:y", "user:x", "user:ü", "temp:t"}

func (d *valueGenerator) state(most int) map[string]any {
	state := map[string]any{}
	for range d.n(most) {
		key := rapid.SampledFrom(stateKeys).Draw(d.t, "key")
		if d.noTemp && strings.HasPrefix(key, session.KeyPrefixTemp) {
			continue
		}
		state[key] = d.any(2)
	}
	return state
}

// event generates an event. It chooses times from a few values, so that some times are equal and some descend.
func (d *valueGenerator) event(id string) *session.Event {
	e := new(session.Event)
	fill := filler{leaf: d.leaf, include: func() bool { return d.n(3) == 0 }, length: func() int { return d.n(2) }}
	fill.fill(reflect.ValueOf(e).Elem())
	e.ID, e.Partial = id, false
	e.Author = rapid.SampledFrom([]string{"user", "clerk", "a b"}).Draw(d.t, "author")
	e.Timestamp = time.Date(2025, 6, 1, 10, 0, d.n(3), 1000*rapid.SampledFrom([]int{0, 1, 250000, 999999}).Draw(d.t, "µs"), time.UTC)
	if d.n(1) == 0 {
		e.Actions.StateDelta = d.state(3)
	}
	if e.RequestedInput != nil {
		e.RequestedInput.Payload = nil
	}
	return e
}

// fill writes sessions of several apps and users to a service. It returns the names of the apps.
func (d *valueGenerator) fill(service session.Service) []string {
	apps := []string{"shop", "a b/c"}
	ctx := d.t.Context()
	for i := range 1 + d.n(3) {
		request := &session.CreateRequest{
			AppName: apps[d.n(1)], UserID: rapid.SampledFrom([]string{"ada", "b%b"}).Draw(d.t, "user"),
			SessionID: fmt.Sprint("s", i), State: d.state(3),
		}
		created, err := service.Create(ctx, request)
		noError(d.t, err)
		s := created.Session
		for j := range d.n(6) {
			noError(d.t, service.AppendEvent(ctx, s, d.event(fmt.Sprint("e", j))))
			if d.n(2) == 0 { // sometimes continue from a session that was read, whose numbers are float64
				got, err := service.Get(ctx, &session.GetRequest{AppName: s.AppName(), UserID: s.UserID(), SessionID: s.ID()})
				noError(d.t, err)
				s = got.Session
			}
		}
	}
	return apps
}

// Package adk returns the same sessions from a migrated store as ADK's services return from the database. A
// second migration adds nothing.
func TestDatabases(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			setRapidChecks(t, e.checks)
			rapid.Check(t, func(rt *rapid.T) {
				l := e.newDatabase(t)
				theirs := l.service(t)
				apps := (&valueGenerator{t: rt}).fill(theirs)
				target := inMemoryStore(t)
				report, results := migrateAll(t, target, openSource(t, l, e.dialect), migrate.Options{})
				for key, r := range results {
					if r.Status != migrate.Created {
						rt.Fatalf("%s: %s: %v", key, r.Status, r.Err)
					}
				}
				if report.SharedErr != nil || len(report.SharedDifferent) > 0 {
					rt.Fatalf("shared: %q, %v", report.SharedDifferent, report.SharedErr)
				}
				equal(t, "sessions", contentsOf(t, newService(t, target), apps...), contentsOf(t, theirs, apps...))

				report, results = migrateAll(t, target, openSource(t, l, e.dialect), migrate.Options{})
				for key, r := range results {
					if r.Status != migrate.Unchanged {
						rt.Fatalf("again: %s: %s: %v", key, r.Status, r.Err)
					}
				}
				if report.Added > 0 || report.SharedAdded > 0 || len(report.SharedDifferent) > 0 {
					rt.Fatalf("again: %+v", report)
				}
			})
		})
	}
}

// exportAll returns the responses of ADK's REST server for the sessions of an app.
func exportAll(t *testing.T, s session.Service, app string) (texts []string) {
	t.Helper()
	server := restServer(t, s, counter{})
	list, err := s.List(t.Context(), &session.ListRequest{AppName: app})
	noError(t, err)
	for _, s := range list.Sessions {
		texts = append(texts, server.text("GET", "/apps/"+url.PathEscape(app)+"/users/"+url.PathEscape(s.UserID())+"/sessions/"+s.ID(), "", 200))
	}
	return texts
}

// ADK's REST server gives the same responses over ADK's own service and over the migrated store.
func TestRESTServer(t *testing.T) {
	setRapidChecks(t, "30")
	rapid.Check(t, func(rt *rapid.T) {
		theirs, target := session.InMemoryService(), inMemoryStore(t)
		(&valueGenerator{t: rt, noTemp: true}).fill(theirs) // noTemp is set because ADK's in-memory service stores temp: keys
		want := exportAll(t, theirs, "shop")
		from := func() migrate.Source { return migrate.NewREST(strings.NewReader(strings.Join(want, "\n")), "exports") }
		if len(want) == 0 {
			return
		}
		_, results := migrateAll(t, target, from(), migrate.Options{})
		for key, r := range results {
			if r.Status != migrate.Created {
				rt.Fatalf("%s: %s, %v", key, r.Status, r.Err)
			}
		}
		equal(t, "exports", parseExports(t, exportAll(t, newService(t, target), "shop")), parseExports(t, want))
		report, _ := migrateAll(t, target, from(), migrate.Options{})
		if report.Added+report.SharedAdded > 0 || report.Sessions[migrate.Unchanged] != len(want) {
			rt.Fatalf("again: %+v", report)
		}
	})
}

// parseExports decodes exported sessions and removes their times.
func parseExports(t *testing.T, texts []string) map[string]any {
	t.Helper()
	sessions := map[string]any{}
	for _, text := range texts {
		var v map[string]any
		noError(t, json.Unmarshal([]byte(text), &v))
		delete(v, "lastUpdateTime")
		sessions[fmt.Sprint(v["userId"], "/", v["id"])] = v
	}
	return sessions
}

// pythonTables contains the tables that ADK for Python creates on each engine.
var pythonTables = map[string][]string{
	"SQLite": {
		`CREATE TABLE sessions (app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL, id VARCHAR(128) NOT NULL, state TEXT NOT NULL,
			create_time DATETIME NOT NULL, update_time DATETIME NOT NULL, PRIMARY KEY (app_name, user_id, id))`,
		`CREATE TABLE events (id VARCHAR(128) NOT NULL, app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL, session_id VARCHAR(128) NOT NULL,
			invocation_id VARCHAR(256) NOT NULL, timestamp DATETIME NOT NULL, event_data TEXT, PRIMARY KEY (id, app_name, user_id, session_id))`,
		`CREATE TABLE app_states (app_name VARCHAR(128) NOT NULL PRIMARY KEY, state TEXT NOT NULL, update_time DATETIME NOT NULL)`,
		`CREATE TABLE user_states (app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL, state TEXT NOT NULL, update_time DATETIME NOT NULL, PRIMARY KEY (app_name, user_id))`,
		`CREATE TABLE adk_internal_metadata ("key" VARCHAR(128) NOT NULL PRIMARY KEY, value VARCHAR(256) NOT NULL)`,
	},
	"the SQLite service": {
		`CREATE TABLE sessions (app_name TEXT NOT NULL, user_id TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL, create_time REAL NOT NULL, update_time REAL NOT NULL, PRIMARY KEY (app_name, user_id, id))`,
		`CREATE TABLE events (id TEXT NOT NULL, app_name TEXT NOT NULL, user_id TEXT NOT NULL, session_id TEXT NOT NULL, invocation_id TEXT NOT NULL, timestamp REAL NOT NULL, event_data TEXT NOT NULL, PRIMARY KEY (app_name, user_id, session_id, id))`,
		`CREATE TABLE app_states (app_name TEXT PRIMARY KEY, state TEXT NOT NULL, update_time REAL NOT NULL)`,
		`CREATE TABLE user_states (app_name TEXT NOT NULL, user_id TEXT NOT NULL, state TEXT NOT NULL, update_time REAL NOT NULL, PRIMARY KEY (app_name, user_id))`,
	},
}

func init() {
	columns := strings.NewReplacer("TEXT", "JSONB", "DATETIME", "TIMESTAMP", "update_time DATETIME NOT NULL, PRIMARY KEY (app_name, user_id, id)", "update_time TIMESTAMP NOT NULL, event_sequence INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (app_name, user_id, id)")
	for _, table := range pythonTables["SQLite"] {
		pythonTables["PostgreSQL"] = append(pythonTables["PostgreSQL"], columns.Replace(table))
	}
}

// pythonRows inserts a session of ADK for Python, with placeholders for the times.
var pythonRows = []string{
	`INSERT INTO sessions (app_name, user_id, id, state, create_time, update_time) VALUES ('shop', 'ada', 's1', '{"start": 1.0, "count": 2, "big": 9007199254740993}', CREATED, CREATED)`,
	`INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data) VALUES ('e2', 'shop', 'ada', 's1', 'i-1', LATER,
		'{"model_version": "m-1", "content": {"parts": [{"thought_signature": "_-8=", "function_call": {"id": "c", "args": {"item_id": 1.0, "function_call": 1}, "name": "book"}}], "role": "model"}, "invocation_id": "i-1", "author": "clerk", "actions": {"state_delta": {"count": 2, "app:seen": 1}, "artifact_delta": {}, "requested_auth_configs": {}}, "long_running_tool_ids": ["c"], "branch": "clerk", "id": "e2", "timestamp": 1748772001.123456, "new_field": {"invocation_id": 1}}')`,
	`INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data) VALUES ('e1', 'shop', 'ada', 's1', 'i-1', EARLIER,
		'{"content": {"parts": [{"text": "caf\u00e9"}], "role": "user"}, "invocation_id": "i-1", "author": "user", "actions": {"state_delta": {"count": 1}, "artifact_delta": {}}, "id": "e1", "timestamp": 1748772000.25}')`,
	`INSERT INTO app_states (app_name, state, update_time) VALUES ('shop', '{"seen": 1.5}', CREATED)`,
	`INSERT INTO user_states (app_name, user_id, state, update_time) VALUES ('shop', 'ada', '{}', CREATED), ('shop', 'bob', '{"name": "Bob"}', CREATED)`,
}

const pythonVersion = `INSERT INTO adk_internal_metadata ("key", value) VALUES ('schema_version', '1')`

// Replacers that insert the times into pythonRows, as the text that SQLAlchemy writes and as numbers.
var (
	timesAsText    = strings.NewReplacer("CREATED", "'2025-06-01 09:59:59.500000'", "EARLIER", "'2025-06-01 12:00:00.250000'", "LATER", "'2025-06-01 12:00:01.123456'")
	timesAsSeconds = strings.NewReplacer("CREATED", "1748771999.5", "EARLIER", "1748772000.25", "LATER", "1748772001.123456")
)

// pythonDatabase creates a database with the given tables and rows, as ADK for Python would.
func pythonDatabase(t *testing.T, tables string, fresh func(*testing.T) location, rows ...string) location {
	t.Helper()
	l := fresh(t)
	l.exec(t, pythonTables[tables]...)
	times := timesAsText
	if tables == "the SQLite service" {
		times = timesAsSeconds
	}
	for _, row := range rows {
		l.exec(t, times.Replace(row))
	}
	return l
}

func TestPython(t *testing.T) {
	for _, c := range []struct {
		tables string
		engine engine
		says   string
	}{
		{"SQLite", engines[0], "ADK for Python's database on SQLite (schema 1)"},
		{"PostgreSQL", engines[1], "ADK for Python's database on PostgreSQL (schema 1)"},
		{"the SQLite service", engines[0], "the database of ADK for Python's SQLite service"},
	} {
		t.Run(c.tables, func(t *testing.T) {
			rows := pythonRows
			if c.tables != "the SQLite service" {
				rows = append([]string{pythonVersion}, rows...)
			}
			l := pythonDatabase(t, c.tables, c.engine.newDatabase, rows...)
			from := openSource(t, l, c.engine.dialect)
			equal(t, "source", from.String(), c.says)
			target := inMemoryStore(t)
			_, results := migrateAll(t, target, from, migrate.Options{})
			r := results["shop/ada/s1"]
			if r.Status != migrate.Created || len(r.Differences) > 0 {
				t.Fatalf("%+v", r)
			}
			var log bytes.Buffer
			key := store.Key{App: "shop", User: "ada", Session: "s1"}
			noError(t, target.Export(t.Context(), key, &log, store.ExportOptions{}))
			// The database does not keep the order of the members of a JSON object.
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			for i, want := range []string{
				`{"patchlog":1,"initialState":{"big":9007199254740993,"start":1.0}}`,
				`{"seq":1,"id":"e1","invocationId":"i-1","author":"user","timestamp":"2025-06-01T10:00:00.25Z","content":{"parts":[{"text":"café"}],"role":"user"},"actions":{"stateDelta":{"count":1},"artifactDelta":{}}}`,
				`{"seq":2,"id":"e2","invocationId":"i-1","author":"clerk","branch":"clerk","timestamp":"2025-06-01T10:00:01.123456Z","modelVersion":"m-1","content":{"parts":[{"thoughtSignature":"/+8=","functionCall":{"id":"c","args":{"item_id":1.0,"function_call":1},"name":"book"}}],"role":"model"},"actions":{"stateDelta":{"count":2,"app:seen":1},"artifactDelta":{},"requestedAuthConfigs":{}},"longRunningToolIds":["c"],"new_field":{"invocation_id":1}}`,
			} {
				a, err := patch.ParseValue([]byte(lines[i]))
				noError(t, err)
				b, err := patch.ParseValue([]byte(want))
				noError(t, err)
				if !a.Equal(b) {
					t.Errorf("line %d is\n%s\nwant\n%s", i, lines[i], want)
				}
			}
			got, err := target.Get(t.Context(), key)
			noError(t, err)
			equal(t, "shared", got.Values()["app:seen"].String(), "1.5")
			info, err := target.Info(t.Context(), key)
			noError(t, err)
			equal(t, "created", info.Created.String(), "2025-06-01 09:59:59.5 +0000 UTC")
			_, err = target.Create(t.Context(), store.Key{App: "shop", User: "bob", Session: "x"}, nil, store.CreateOptions{})
			noError(t, err)
			got, err = target.Get(t.Context(), store.Key{App: "shop", User: "bob", Session: "x"})
			noError(t, err)
			equal(t, "the state of a user without sessions", got.Values()["user:name"].String(), `"Bob"`)

			report, results := migrateAll(t, target, openSource(t, l, c.engine.dialect), migrate.Options{})
			equal(t, "again", results["shop/ada/s1"].Status, migrate.Unchanged)
			equal(t, "added again", report.Added+report.SharedAdded, 0)
		})
	}
}

// The error for tables that cannot be migrated tells the user what to do.
func TestRefusedTables(t *testing.T) {
	const rest = `CREATE TABLE app_states (app_name TEXT, state TEXT); CREATE TABLE user_states (app_name TEXT, user_id TEXT, state TEXT); ` +
		`CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, state TEXT, create_time DATETIME, update_time DATETIME); `
	const old = rest + `CREATE TABLE events (id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, invocation_id TEXT, author TEXT, actions BLOB, timestamp DATETIME, content TEXT`
	v1 := strings.Join(pythonTables["SQLite"], ";")
	for name, c := range map[string]struct {
		sql   string
		error error
		words string
	}{
		"no tables":           {`CREATE TABLE t (x)`, migrate.ErrSchema, "the tables sessions and events of ADK's session services are missing"},
		"schema 0, said":      {v1 + `; INSERT INTO adk_internal_metadata VALUES ('schema_version', '0')`, migrate.ErrPickled, "adk migrate session"},
		"a newer schema":      {v1 + `; INSERT INTO adk_internal_metadata VALUES ('schema_version', '2')`, migrate.ErrSchema, `have schema "2"; only schema 1 is supported`},
		"no version":          {v1, migrate.ErrSchema, `have schema ""`},
		"schema 0":            {old + `, input_transcription TEXT)`, migrate.ErrPickled, "adk migrate session"},
		"older than that":     {old + `); INSERT INTO events (actions) VALUES (x'8004952e')`, migrate.ErrPickled, "adk migrate session"},
		"neither":             {rest + `CREATE TABLE events (id TEXT)`, migrate.ErrSchema, "neither a column event_data nor a column actions"},
		"both":                {rest + `CREATE TABLE events (actions BLOB, event_data TEXT)`, migrate.ErrSchema, "a column event_data and a column actions"},
		"no table":            {strings.Replace(old, `app_states`, `other`, 1) + `)`, migrate.ErrSchema, "there is no table app_states"},
		"no column":           {strings.Replace(old, `create_time`, `created`, 1) + `)`, migrate.ErrSchema, "the table sessions has no column create_time"},
		"a column too many":   {old + `, mood TEXT)`, migrate.ErrSchema, "the column events.mood is unknown"},
		"another one":         {strings.Replace(old, `state TEXT,`, `state TEXT, tenant TEXT,`, 1) + `)`, migrate.ErrSchema, ".tenant is unknown"},
		"no file of SQLite's": {"", nil, "not a database"},
	} {
		l := engines[0].newDatabase(t)
		if c.sql != "" {
			l.exec(t, c.sql)
		} else {
			path, _, _ := strings.Cut(strings.TrimPrefix(l.dsn, "file:"), "?")
			noError(t, os.WriteFile(filepath.Clean(path), bytes.Repeat([]byte("no database"), 999), 0o600))
		}
		_, err := migrate.OpenSQL(t.Context(), l.open(t), migrate.SQLite, migrate.SQLOptions{})
		if err == nil || c.error != nil && !errors.Is(err, c.error) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %v: %s", name, err, c.error, c.words)
		}
	}
	l := engines[0].newDatabase(t)
	l.exec(t, old+`, mood TEXT)`)
	if _, err := migrate.OpenSQL(t.Context(), l.open(t), migrate.SQLite, migrate.SQLOptions{IgnoreColumns: []string{"events.mood"}}); err != nil {
		t.Errorf("with an ignored column: %v", err)
	}
	for _, dialect := range []migrate.Dialect{0, 9} {
		if _, err := migrate.OpenSQL(t.Context(), l.open(t), dialect, migrate.SQLOptions{}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("dialect %d: %v", dialect, err)
		}
	}
	if _, err := migrate.OpenSQL(t.Context(), nil, migrate.SQLite, migrate.SQLOptions{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no database: %v", err)
	}
}

// A row that cannot be read fails only the migration of its session. The error names the event and the column.
func TestRefusedRows(t *testing.T) {
	insert := func(id, data string) string {
		return `INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data) VALUES ('` + id + `', 'shop', 'eve', 's', 'i', EARLIER, ` + data + `)`
	}
	session := `INSERT INTO sessions (app_name, user_id, id, state, create_time, update_time) VALUES ('shop', 'eve', 's', '{}', CREATED, CREATED)`
	for _, c := range []struct{ row, words string }{
		{insert("x", `NULL`), `event "x": event_data: invalid: the value is missing`},
		{insert("x", `'null'`), `event "x": event_data: invalid: the value is missing`},
		{insert("x", `'{"a": NaN}'`), `event "x": event_data: invalid: "{\"a\": NaN}" is not JSON`},
		{insert("x", `'{"a": 1},"b":{"c": 1}'`), `is not JSON`},
		{insert("x", `'[]'`), `event_data`},
		{insert("x", `'{"id": "y"}'`), `the column has "x"`},
		{insert("x", `'{"invocation_id": "j"}'`), `the column has "i"`},
		{insert("x", `'{"invocation_id": "i", "invocationId": "i"}'`), `two spellings`},
		{insert("x", `'{"timestamp": "noon"}'`), `timestamp`},
		{`UPDATE sessions SET state = '{' WHERE user_id = 'eve'`, `state: invalid`},
		{`UPDATE sessions SET state = '[]' WHERE user_id = 'eve'`, `state: want an object`},
		{`UPDATE sessions SET state = '{"a":1,"a":2}' WHERE user_id = 'eve'`, `state: `},
		{`UPDATE sessions SET create_time = 'noon' WHERE user_id = 'eve'`, `create_time: invalid: "noon" is not a time`},
	} {
		l := pythonDatabase(t, "SQLite", engines[0].newDatabase, append(append([]string{pythonVersion}, pythonRows...), session, c.row)...)
		target := inMemoryStore(t)
		report, results := migrateAll(t, target, openSource(t, l, migrate.SQLite), migrate.Options{})
		r := results["shop/eve/s"]
		if r.Status != migrate.Failed || !strings.Contains(r.Err.Error(), c.words) || !errors.Is(r.Err, store.ErrInvalid) {
			t.Errorf("%s: %s, %v", c.row, r.Status, r.Err)
		}
		if report.Sessions[migrate.Created] != 1 || results["shop/ada/s1"].Status != migrate.Created {
			t.Errorf("%s: the other session: %+v", c.row, report)
		}
		if _, err := target.Get(t.Context(), r.Key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: the session exists, or reading it failed: %v", c.row, err)
		}
	}
	l := pythonDatabase(t, "SQLite", engines[0].newDatabase, append(append([]string{pythonVersion}, pythonRows...), `UPDATE user_states SET state = '{' WHERE user_id = 'ada'`)...)
	report, _ := migrateAll(t, inMemoryStore(t), openSource(t, l, migrate.SQLite), migrate.Options{})
	if report.SharedErr == nil || !strings.Contains(report.SharedErr.Error(), `shared state of user "ada" of app "shop"`) || report.SharedAdded != 2 {
		t.Errorf("a shared state that cannot be read: %+v", report)
	}
}
