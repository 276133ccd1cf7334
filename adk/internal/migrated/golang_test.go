package migrated

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

var key = store.Key{App: "shop", User: "ada", Session: "1"}

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

// begin creates a session.
func begin(t testing.TB, s session.Service, state map[string]any) session.Session {
	t.Helper()
	r, err := s.Create(t.Context(), &session.CreateRequest{AppName: key.App, UserID: key.User, SessionID: key.Session, State: state})
	no(t, err)
	return r.Session
}

// said is an event with a text.
func said(id string, at time.Time) *session.Event {
	return &session.Event{ID: id, InvocationID: "i", Author: "user", Timestamp: at,
		LLMResponse: model.LLMResponse{Content: genai.NewContentFromText("text of "+id, "user")}}
}

// idsOf are the ids of a log, in order.
func idsOf(t testing.TB, s *store.Store) string {
	t.Helper()
	var ids []string
	for r, err := range s.RawEvents(t.Context(), key, 1) {
		no(t, err)
		ids = append(ids, r.ID())
	}
	return strings.Join(ids, " ")
}

// Numbers have the kinds that they have in the rows.
func TestLiterals(t *testing.T) {
	for _, e := range engines {
		l := e.fresh(t)
		theirs := l.service(t)
		numbers := map[string]any{"a": json.Number("1.0"), "b": json.Number("1e2"), "c": int64(1<<53 + 1), "d": uint64(1<<64 - 1), "e": 0.1}
		s := begin(t, theirs, map[string]any{"start": numbers, "app:n": numbers, "user:n": numbers})
		event := said("e1", noon)
		event.Actions.StateDelta = map[string]any{"set": numbers}
		event.Content.Parts = []*genai.Part{{FunctionCall: &genai.FunctionCall{Name: "f", Args: map[string]any{"set": numbers}}}}
		no(t, theirs.AppendEvent(t.Context(), s, event))
		_, err := theirs.Create(t.Context(), &session.CreateRequest{AppName: key.App, UserID: key.User, SessionID: "2", State: map[string]any{"start": numbers}})
		no(t, err)
		target := memory(t)
		_, results := run(t, target, source(t, l, e.dialect), migrate.Options{})
		if d := results[key.String()].Differences; len(d) > 0 {
			t.Errorf("%s: differences %v", e.name, d)
		}
		var log bytes.Buffer
		no(t, target.Export(t.Context(), key, &log, store.ExportOptions{}))
		const exact = `{"a":1.0,"b":1e2,"c":9007199254740993,"d":18446744073709551615,"e":0.1}`
		column := exact
		if e.name == "PostgreSQL" {
			column = strings.Replace(exact, "1e2", "100", 1) // so the column has it
		}
		for _, want := range []string{`"stateDelta":{"set":` + exact, `"args":{"set":` + column} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: %s is not in\n%s", e.name, want, &log)
			}
		}
		// The state of a session that has events ADK has read, as float64, and written again.
		initial, err := target.InitialState(t.Context(), store.Key{App: key.App, User: key.User, Session: "2"})
		no(t, err)
		equal(t, "initial state", initial["start"].String(), column)
		got, err := target.Get(t.Context(), key)
		no(t, err)
		equal(t, "state", got.Values()["set"].String(), exact)
		for _, name := range []string{"app:n", "user:n"} { // which ADK has written once
			equal(t, name, got.Values()[name].String(), column)
		}
		equalServices(t, theirs, asADK(t, target), key.App)
	}
}

// Events come over in the order of their times, those with equal times in the order in which
// they were appended, and a session that has grown is gone on with.
func TestGrowing(t *testing.T) {
	for _, e := range engines {
		l := e.fresh(t)
		theirs := l.service(t)
		before := time.Now()
		s := begin(t, theirs, nil)
		var want []string
		target := memory(t)
		for i, status := range []migrate.Status{migrate.Created, migrate.Extended, migrate.Extended} {
			for j := range 10 {
				id := fmt.Sprintf("%x", 97*(i*10+j)%64) // in no order
				want = append(want, id)
				no(t, theirs.AppendEvent(t.Context(), s, said(id, noon.Add(time.Duration(i*10+j/3)*time.Microsecond))))
			}
			report, results := run(t, target, source(t, l, e.dialect), migrate.Options{})
			r := results[key.String()]
			equal(t, e.name, r.Status, status)
			equal(t, "added", report.Added, 10)
			equal(t, "ties are reported", strings.Contains(fmt.Sprint(r.Differences), "have the time of the one before"), e.name == "PostgreSQL")
		}
		equal(t, "order", idsOf(t, target), strings.Join(want, " "))
		info, err := target.Info(t.Context(), key)
		no(t, err)
		if info.Created.Before(before.Add(-time.Second)) || info.Created.After(time.Now()) {
			t.Errorf("created %v", info.Created)
		}
		equalServices(t, theirs, asADK(t, target), key.App)
	}
}

// A state in the table that the events do not explain is the state of the session afterwards.
func TestWrittenState(t *testing.T) {
	l := engines[0].fresh(t)
	theirs := l.service(t)
	s := begin(t, theirs, map[string]any{"a": 1})
	event := said("e1", noon)
	event.Actions.StateDelta = map[string]any{"b": 1}
	no(t, theirs.AppendEvent(t.Context(), s, event))
	l.exec(t, `UPDATE sessions SET state = '{"a":2,"b":[1.0],"c":null}'`)
	target := memory(t)
	_, results := run(t, target, source(t, l, migrate.SQLite), migrate.Options{})
	equal(t, "differences", len(results[key.String()].Differences), 1)
	equalServices(t, theirs, asADK(t, target), key.App)
	got, err := target.Get(t.Context(), key)
	no(t, err)
	equal(t, "b", got.Values()["b"].String(), "[1.0]")
}

// Tables of older versions lack columns. Events of no session, and times in several zones, are
// reported; a pickled row among others fails its session.
func TestOddTables(t *testing.T) {
	l := engines[0].fresh(t)
	theirs := l.service(t)
	s := begin(t, theirs, nil)
	no(t, theirs.AppendEvent(t.Context(), s, said("e1", noon)))
	for _, c := range []string{"routes_json", "output_json", "node_info_json", "requested_input_json", "isolation_scope"} {
		l.exec(t, "ALTER TABLE events DROP COLUMN "+c)
	}
	l.exec(t, `INSERT INTO events (id, app_name, user_id, session_id, actions, timestamp) VALUES ('x', 'shop', 'ada', 'gone', '{}', '2025-06-01')`)
	target := memory(t)
	report, _ := run(t, target, source(t, l, migrate.SQLite), migrate.Options{})
	equal(t, "report", fmt.Sprint(report.Source), "[1 events are of sessions that are not in the table of sessions; they are left out]")
	equal(t, "events", idsOf(t, target), "e1")

	row := func(id, at string) string {
		return fmt.Sprintf(`INSERT INTO events (id, app_name, user_id, session_id, author, actions, timestamp) VALUES ('%s', 'shop', 'ada', '1', 'user', '{}', %s)`, id, at)
	}
	l.exec(t, row("e2", `'2025-06-01 14:30:00+02:00'`), row("e3", `'2025-06-01 12:45:00+00:00'`), row("e4", `NULL`), row("e5", `'2025-06-01 12:46:00.5 +0000 UTC m=+0.1'`))
	target = memory(t)
	_, results := run(t, target, source(t, l, migrate.SQLite), migrate.Options{})
	words := fmt.Sprint(results[key.String()].Differences)
	equal(t, "order", idsOf(t, target), "e4 e1 e2 e3 e5")
	equal(t, "the zones are reported", strings.Contains(words, "in several zones"), true)
	equal(t, "the time is reported", strings.Contains(words, "1 of 5 events have no time"), true)

	l.exec(t, `UPDATE events SET actions = x'80049502' WHERE id = 'e3'`)
	_, results = run(t, memory(t), source(t, l, migrate.SQLite), migrate.Options{})
	equal(t, "a pickled row", strings.Contains(fmt.Sprint(results[key.String()].Err), `event "e3": pickled actions`), true)
	equal(t, "a pickled row", results[key.String()].Status, migrate.Failed)
	for column, words := range map[string]string{
		"content = '{'": `content: invalid: "{" is not JSON`, "content = x'ff'": "content", "author = x'ff'": "author: invalid", "timestamp = 'x'": "timestamp: invalid",
		"turn_complete = 'x'": "turn_complete: invalid", "custom_metadata = '[]'": "customMetadata", "timestamp = 1e99": "timestamp: invalid",
	} {
		l.exec(t, `UPDATE events SET actions = '{}'`, `UPDATE events SET `+column+` WHERE id = 'e3'`)
		_, results = run(t, memory(t), source(t, l, migrate.SQLite), migrate.Options{})
		if r := results[key.String()]; r.Status != migrate.Failed || !strings.Contains(r.Err.Error(), words) || !strings.Contains(r.Err.Error(), `event "e3"`) {
			t.Errorf("%s: %s, %v", column, r.Status, r.Err)
		}
		l.exec(t, `UPDATE events SET content = NULL, author = 'a', timestamp = '2025-06-01', turn_complete = 1, custom_metadata = NULL`)
	}
}

// A compaction record in custom metadata, as newer versions write it, becomes a summary, and
// the agent goes on with what is visible.
func TestCompactionRecord(t *testing.T) {
	for _, e := range engines {
		l := e.fresh(t)
		theirs := l.service(t)
		s := begin(t, theirs, nil)
		for i := range 4 {
			no(t, theirs.AppendEvent(t.Context(), s, said(fmt.Sprint("e", i), noon.Add(time.Duration(i)*time.Second))))
		}
		record := said("c", noon.Add(4*time.Second))
		record.Content = nil
		record.CustomMetadata = map[string]any{"_adk_compaction": map[string]any{
			"startTimestamp": noon, "endTimestamp": noon.Add(2 * time.Second), "compactedContent": genai.NewContentFromText("in short", "model"),
		}}
		no(t, theirs.AppendEvent(t.Context(), s, record))
		target := memory(t)
		_, results := run(t, target, source(t, l, e.dialect), migrate.Options{})
		equal(t, "adopted", results[key.String()].Adopted, []string{"c"})
		got, err := asADK(t, target).Get(t.Context(), &session.GetRequest{AppName: key.App, UserID: key.User, SessionID: key.Session})
		no(t, err)
		var texts []string
		for e := range got.Session.Events().All() {
			texts = append(texts, e.Content.Parts[0].Text)
		}
		if !slices.Equal(texts, []string{"in short", "text of e3"}) {
			t.Errorf("%s: visible are %q", e.name, texts)
		}
	}
}
