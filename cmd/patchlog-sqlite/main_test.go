package main

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/command"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// tables returns statements that create the tables of ADK for Go's SQL service, and one session in them. The parameters
// are the column types of the database engine.
func tables(bytes, json, stamp string) []string {
	return []string{
		`CREATE TABLE sessions (app_name text, user_id text, id text, state ` + json + `, create_time ` + stamp + `, update_time ` + stamp + `)`,
		`CREATE TABLE events (id text, app_name text, user_id text, session_id text, invocation_id text, author text, actions ` + bytes + `,
			long_running_tool_ids_json ` + json + `, branch text, timestamp ` + stamp + `, content ` + json + `, partial boolean)`,
		`CREATE TABLE app_states (app_name text, state ` + json + `, update_time ` + stamp + `)`,
		`CREATE TABLE user_states (app_name text, user_id text, state ` + json + `, update_time ` + stamp + `)`,
		`INSERT INTO sessions VALUES ('shop', 'ada', '1', '{"n": 1.5, "set": 2}', '2025-06-01 10:00:00+00:00', '2025-06-01 10:00:00+00:00')`,
		`INSERT INTO events VALUES ('e1', 'shop', 'ada', '1', 'i', 'user', '{"stateDelta":{"set":2}}', '["c"]', NULL, '2025-06-01 12:00:00.25+02:00',
			'{"role":"user","parts":[{"text":"hi"}]}', false)`,
		`INSERT INTO app_states VALUES ('shop', '{"open": true}', NULL)`,
	}
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgtest.Options{NoSync: true})) }

func patchlog(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	command.Run(context.Background(), args, strings.NewReader(""), &out, &errs, func(string) string { return "" }, command.Options{})
	return out.String(), errs.String()
}

// The import command reads databases on SQLite and on PostgreSQL without changing them.
func TestMigrate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "adk ?#%.db")
	db := testlog.Must(sql.Open("sqlite", "file:"+filepath.ToSlash(dir)+"/adk%20%3F%23%25.db"))(t)
	defer db.Close() // the database stays open, so that the file lacks its latest writes, as while a service runs
	for _, s := range append([]string{"PRAGMA journal_mode = WAL"}, tables("blob", "text", "datetime")...) {
		testlog.Must(db.Exec(s))(t)
	}
	dsn := pgtest.New(t)
	for _, s := range tables("bytea", "jsonb", "timestamptz") {
		pgtest.Exec(t, dsn, s)
	}
	before := testlog.Must(os.ReadFile(file))(t)
	for name, from := range map[string]string{"SQLite": file, "PostgreSQL": pgtest.URL(t, dsn)} {
		to := filepath.Join(dir, name+".db")
		for _, want := range []string{
			"from ADK for Go's database on " + name + "\nshop/ada/1: created, 1 record added; the log ends at record 1\n1 session, 1 created, 1 shared value added\n",
			"from ADK for Go's database on " + name + "\n1 session, 1 unchanged: nothing new\n",
		} {
			if out, errs := patchlog(t, "import", from, "--db", to); out != want || errs != "" {
				t.Errorf("%s: %s%s", name, out, errs)
			}
		}
		const log = `{"patchlog":1,"initialState":{"n":1.5}}` + "\n" +
			`{"seq":1,"id":"e1","invocationId":"i","author":"user","timestamp":"2025-06-01T10:00:00.25Z","content":{"role":"user","parts":[{"text":"hi"}]},"actions":{"stateDelta":{"set":2}},"longRunningToolIds":["c"]}` + "\n"
		if out, errs := patchlog(t, "export", "shop/ada/1", "--db", to); strings.ReplaceAll(out, `"parts":[{"text":"hi"}],"role":"user"`, `"role":"user","parts":[{"text":"hi"}]`) != log {
			t.Errorf("%s: %s%s", name, out, errs)
		}
	}
	for range 2 { // the second import must not copy the sessions that the first one has written
		if out, errs := patchlog(t, "import", pgtest.URL(t, dsn), "--db", pgtest.URL(t, dsn)); !strings.HasPrefix(out, "from ADK for Go's database on PostgreSQL\n") || errs != "" {
			t.Errorf("to the same database: %s%s", out, errs)
		}
	}
	after, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the source has changed (%v)", err)
	}
	none := filepath.Join(dir, "none.db")
	for from, want := range map[string]string{
		none: "no such file", "postgres://nobody@/none?host=" + dir: "SOURCE: ", pgtest.URL(t, pgtest.New(t)): "the tables sessions and events of ADK's session services are missing",
	} {
		if out, errs := patchlog(t, "import", from, "--db", none); out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %s%s", from, out, errs)
		}
	}
	if entries, _ := filepath.Glob(none + "*"); len(entries) > 0 {
		t.Errorf("%v is there", entries)
	}
}
