package migrated

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// The tables of ADK for Python, as its services make them on each engine.
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
	"PostgreSQL": {
		`CREATE TABLE sessions (app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL, id VARCHAR(128) NOT NULL, state JSONB NOT NULL,
			create_time TIMESTAMP NOT NULL, update_time TIMESTAMP NOT NULL, event_sequence INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (app_name, user_id, id))`,
		`CREATE TABLE events (id VARCHAR(128) NOT NULL, app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL, session_id VARCHAR(128) NOT NULL,
			invocation_id VARCHAR(256) NOT NULL, timestamp TIMESTAMP NOT NULL, event_data JSONB, PRIMARY KEY (id, app_name, user_id, session_id))`,
		`CREATE TABLE app_states (app_name VARCHAR(128) NOT NULL PRIMARY KEY, state JSONB NOT NULL, update_time TIMESTAMP NOT NULL)`,
		`CREATE TABLE user_states (app_name VARCHAR(128) NOT NULL, user_id VARCHAR(128) NOT NULL, state JSONB NOT NULL, update_time TIMESTAMP NOT NULL, PRIMARY KEY (app_name, user_id))`,
		`CREATE TABLE adk_internal_metadata ("key" VARCHAR(128) NOT NULL PRIMARY KEY, value VARCHAR(256) NOT NULL)`,
	},
	"the SQLite service": {
		`CREATE TABLE sessions (app_name TEXT NOT NULL, user_id TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL, create_time REAL NOT NULL, update_time REAL NOT NULL, PRIMARY KEY (app_name, user_id, id))`,
		`CREATE TABLE events (id TEXT NOT NULL, app_name TEXT NOT NULL, user_id TEXT NOT NULL, session_id TEXT NOT NULL, invocation_id TEXT NOT NULL, timestamp REAL NOT NULL, event_data TEXT NOT NULL, PRIMARY KEY (app_name, user_id, session_id, id))`,
		`CREATE TABLE app_states (app_name TEXT PRIMARY KEY, state TEXT NOT NULL, update_time REAL NOT NULL)`,
		`CREATE TABLE user_states (app_name TEXT NOT NULL, user_id TEXT NOT NULL, state TEXT NOT NULL, update_time REAL NOT NULL, PRIMARY KEY (app_name, user_id))`,
	},
}

// What a session of ADK for Python's says, apart from the form of times.
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

// The times of the rows: as SQLAlchemy writes them, and as numbers.
var (
	inWords   = strings.NewReplacer("CREATED", "'2025-06-01 09:59:59.500000'", "EARLIER", "'2025-06-01 12:00:00.250000'", "LATER", "'2025-06-01 12:00:01.123456'")
	inSeconds = strings.NewReplacer("CREATED", "1748771999.5", "EARLIER", "1748772000.25", "LATER", "1748772001.123456")
)

// pythonDatabase makes a database of ADK for Python's.
func pythonDatabase(t *testing.T, tables string, fresh func(testing.TB) location, rows ...string) location {
	t.Helper()
	l := fresh(t)
	l.exec(t, pythonTables[tables]...)
	times := inWords
	if tables == "the SQLite service" {
		times = inSeconds
	}
	for _, row := range rows {
		l.exec(t, times.Replace(row))
	}
	return l
}

// Databases of ADK for Python come over in ADK's JSON.
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
			l := pythonDatabase(t, c.tables, c.engine.fresh, rows...)
			from := source(t, l, c.engine.dialect)
			equal(t, "source", from.String(), c.says)
			target := memory(t)
			_, results := run(t, target, from, migrate.Options{})
			r := results["shop/ada/s1"]
			if r.Status != migrate.Created || len(r.Differences) > 0 {
				t.Fatalf("%+v", r)
			}
			var log bytes.Buffer
			key := store.Key{App: "shop", User: "ada", Session: "s1"}
			no(t, target.Export(t.Context(), key, &log, store.ExportOptions{}))
			// The order of an object's members is the database's.
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			for i, want := range []string{
				`{"patchlog":1,"initialState":{"big":9007199254740993,"start":1.0}}`,
				`{"seq":1,"id":"e1","invocationId":"i-1","author":"user","timestamp":"2025-06-01T10:00:00.25Z","content":{"parts":[{"text":"café"}],"role":"user"},"actions":{"stateDelta":{"count":1},"artifactDelta":{}}}`,
				`{"seq":2,"id":"e2","invocationId":"i-1","author":"clerk","branch":"clerk","timestamp":"2025-06-01T10:00:01.123456Z","modelVersion":"m-1","content":{"parts":[{"thoughtSignature":"/+8=","functionCall":{"id":"c","args":{"item_id":1.0,"function_call":1},"name":"book"}}],"role":"model"},"actions":{"stateDelta":{"count":2,"app:seen":1},"artifactDelta":{},"requestedAuthConfigs":{}},"longRunningToolIds":["c"],"new_field":{"invocation_id":1}}`,
			} {
				a, err := patch.ParseValue([]byte(lines[i]))
				no(t, err)
				b, err := patch.ParseValue([]byte(want))
				no(t, err)
				if !a.Equal(b) {
					t.Errorf("line %d is\n%s\nwant\n%s", i, lines[i], want)
				}
			}
			got, err := target.Get(t.Context(), key)
			no(t, err)
			equal(t, "shared", got.Values()["app:seen"].String(), "1.5")
			info, err := target.Info(t.Context(), key)
			no(t, err)
			equal(t, "created", info.Created.String(), "2025-06-01 09:59:59.5 +0000 UTC")
			_, err = target.Create(t.Context(), store.Key{App: "shop", User: "bob", Session: "x"}, nil)
			no(t, err)
			got, err = target.Get(t.Context(), store.Key{App: "shop", User: "bob", Session: "x"})
			no(t, err)
			equal(t, "the state of a user without sessions", got.Values()["user:name"].String(), `"Bob"`)

			report, results := run(t, target, source(t, l, c.engine.dialect), migrate.Options{})
			equal(t, "again", results["shop/ada/s1"].Status, migrate.Unchanged)
			equal(t, "added again", report.Added+report.Shared.Added, 0)
		})
	}
}

// Tables that cannot be read are refused, with what to do.
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
		"no tables":           {`CREATE TABLE t (x)`, migrate.ErrSchema, "there are no tables sessions and events"},
		"schema 0, said":      {v1 + `; INSERT INTO adk_internal_metadata VALUES ('schema_version', '0')`, migrate.ErrPickled, "adk migrate session"},
		"a newer schema":      {v1 + `; INSERT INTO adk_internal_metadata VALUES ('schema_version', '2')`, migrate.ErrSchema, `of schema "2"; 1 is known`},
		"no version":          {v1, migrate.ErrSchema, `of schema ""`},
		"schema 0":            {old + `, input_transcription TEXT)`, migrate.ErrPickled, "adk migrate session"},
		"older than that":     {old + `); INSERT INTO events (actions) VALUES (x'8004952e')`, migrate.ErrPickled, "adk migrate session"},
		"neither":             {rest + `CREATE TABLE events (id TEXT)`, migrate.ErrSchema, "neither a column event_data nor a column actions"},
		"both":                {rest + `CREATE TABLE events (actions BLOB, event_data TEXT)`, migrate.ErrSchema, "a column event_data and a column actions"},
		"no table":            {strings.Replace(old, `app_states`, `other`, 1) + `)`, migrate.ErrSchema, "there is no table app_states"},
		"no column":           {strings.Replace(old, `create_time`, `created`, 1) + `)`, migrate.ErrSchema, "the table sessions has no column create_time"},
		"a column too many":   {old + `, mood TEXT)`, migrate.ErrSchema, "the column events.mood is not known"},
		"another one":         {strings.Replace(old, `state TEXT,`, `state TEXT, tenant TEXT,`, 1) + `)`, migrate.ErrSchema, ".tenant is not known"},
		"no file of SQLite's": {"", nil, "not a database"},
	} {
		l := engines[0].fresh(t)
		if c.sql != "" {
			l.exec(t, c.sql)
		} else {
			path, _, _ := strings.Cut(strings.TrimPrefix(l.dsn, "file:"), "?")
			no(t, os.WriteFile(filepath.Clean(path), bytes.Repeat([]byte("no database"), 999), 0o600))
		}
		_, err := migrate.OpenSQL(t.Context(), l.open(t), migrate.SQLite, migrate.SQLOptions{})
		if err == nil || c.error != nil && !errors.Is(err, c.error) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %v: %s", name, err, c.error, c.words)
		}
	}
	l := engines[0].fresh(t)
	l.exec(t, old+`, mood TEXT)`)
	if _, err := migrate.OpenSQL(t.Context(), l.open(t), migrate.SQLite, migrate.SQLOptions{IgnoreColumns: []string{"events.mood"}}); err != nil {
		t.Errorf("a column that may stay behind: %v", err)
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

// A row that cannot be read fails its session alone, naming event and column.
func TestRefusedRows(t *testing.T) {
	insert := func(id, data string) string {
		return `INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data) VALUES ('` + id + `', 'shop', 'eve', 's', 'i', EARLIER, ` + data + `)`
	}
	session := `INSERT INTO sessions (app_name, user_id, id, state, create_time, update_time) VALUES ('shop', 'eve', 's', '{}', CREATED, CREATED)`
	for _, c := range []struct{ row, words string }{
		{insert("x", `NULL`), `event "x": event_data: invalid: there is none`},
		{insert("x", `'null'`), `event "x": event_data: invalid: there is none`},
		{insert("x", `'{"a": NaN}'`), `event "x": event_data: invalid: "{\"a\": NaN}" is not JSON`},
		{insert("x", `'{"a": 1},"b":{"c": 1}'`), `is not JSON`},
		{insert("x", `'[]'`), `event_data`},
		{insert("x", `'{"id": "y"}'`), `the column says "x"`},
		{insert("x", `'{"invocation_id": "j"}'`), `the column says "i"`},
		{insert("x", `'{"invocation_id": "i", "invocationId": "i"}'`), `two spellings`},
		{insert("x", `'{"timestamp": "noon"}'`), `timestamp`},
		{`UPDATE sessions SET state = '{' WHERE user_id = 'eve'`, `state: invalid`},
		{`UPDATE sessions SET state = '[]' WHERE user_id = 'eve'`, `state: want an object`},
		{`UPDATE sessions SET state = '{"a":1,"a":2}' WHERE user_id = 'eve'`, `state: `},
		{`UPDATE sessions SET create_time = 'noon' WHERE user_id = 'eve'`, `create_time: invalid: "noon" is no time`},
	} {
		l := pythonDatabase(t, "SQLite", engines[0].fresh, append(append([]string{pythonVersion}, pythonRows...), session, c.row)...)
		target := memory(t)
		report, results := run(t, target, source(t, l, migrate.SQLite), migrate.Options{})
		r := results["shop/eve/s"]
		if r.Status != migrate.Failed || !strings.Contains(r.Err.Error(), c.words) || !errors.Is(r.Err, store.ErrInvalid) {
			t.Errorf("%s: %s, %v", c.row, r.Status, r.Err)
		}
		if report.Sessions[migrate.Created] != 1 || results["shop/ada/s1"].Status != migrate.Created {
			t.Errorf("%s: the other session: %+v", c.row, report)
		}
		if _, err := target.Get(t.Context(), r.Key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: something of it is there: %v", c.row, err)
		}
	}
	l := pythonDatabase(t, "SQLite", engines[0].fresh, append(append([]string{pythonVersion}, pythonRows...), `UPDATE user_states SET state = '{' WHERE user_id = 'ada'`)...)
	report, _ := run(t, memory(t), source(t, l, migrate.SQLite), migrate.Options{})
	if report.SharedErr == nil || !strings.Contains(report.SharedErr.Error(), `shared state of user "ada" of app "shop"`) || report.Shared.Added != 2 {
		t.Errorf("a shared state that cannot be read: %+v", report)
	}
}
