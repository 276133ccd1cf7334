package migrate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

const python = `{"id":"1","appName":"shop","userId":"ada","state":{"n":1.0,"big":9007199254740993,"set":2,"state_delta":1,"app:open":true,"user:name":"Ada"},
"events":[{"id":"e1","invocationId":"i","author":"user","timestamp":1748772000.25,"content":{"role":"user","parts":[{"text":"hi"},{"inlineData":{"data":"_-8=","mimeType":"x"}}]},
"actions":{"stateDelta":{"set":2,"state_delta":1},"artifactDelta":{},"requestedAuthConfigs":{}},"unknown":[1e2]}],"lastUpdateTime":1748772001.5}`

// NewREST accepts one session, an array of sessions, and a sequence of sessions.
func TestREST(t *testing.T) {
	two := strings.Replace(python, `"id":"1"`, `"id":"2"`, 1)
	for name, text := range map[string]string{
		"one": python, "array": " [\n" + python + "," + two + "]\n", "lines": strings.ReplaceAll(python, "\n", "") + "\n" + two, "empty array": "[]",
		"snake_case": strings.NewReplacer("appName", "app_name", "userId", "user_id", "lastUpdateTime", "last_update_time").Replace(python),
	} {
		s := openMemory(t)
		_, report := runSource(t, s, migrate.Options{}, migrate.NewREST(iotest.OneByteReader(strings.NewReader(text)), "f"))
		want := map[string]int{"one": 1, "array": 2, "lines": 2, "snake_case": 1}[name]
		if len(report.Sessions) > 1 || report.Sessions[migrate.Created] != want || len(report.Source) > 0 {
			t.Errorf("%s: %+v", name, report)
		}
		if want == 0 {
			continue
		}
		equal(t, name, export(t, s, key), `{"patchlog":1,"initialState":{"big":9007199254740993,"n":1.0}}
{"seq":1,"id":"e1","invocationId":"i","author":"user","timestamp":"2025-06-01T10:00:00.25Z","content":{"role":"user","parts":[{"text":"hi"},{"inlineData":{"data":"/+8=","mimeType":"x"}}]},"actions":{"stateDelta":{"set":2,"state_delta":1},"artifactDelta":{},"requestedAuthConfigs":{}},"unknown":[1e2]}
`)
		equal(t, name, stateJSON(t, s, key), `{"app:open":true,"big":9007199254740993,"n":1.0,"set":2,"state_delta":1,"user:name":"Ada"}`)
		info := testlog.Must(s.Info(t.Context(), key))(t)
		equal(t, name+": created", info.Created.String(), "2025-06-01 10:00:00.25 +0000 UTC")
	}
}

// Invalid input is refused with an error that has the name of the input. The sessions before the invalid session are
// migrated, and the invalid session is not migrated even in part.
func TestRESTGarbage(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "f: invalid: the input is empty",
		" \n":                        "f: invalid: the input is empty",
		python[:200]:                 "f: invalid: the JSON ends too early, after byte",
		"[" + python:                 "f: invalid: the JSON ends too early, after byte",
		"[" + python + ",":           "f: invalid: the JSON ends too early, after byte",
		"[" + python + "]" + "1":     "f: invalid: data follows the array of sessions",
		python + "\nSQLite format 3": "f: invalid: after byte",
		"[" + python + "}":           "f: invalid: after byte",
	} {
		s := openMemory(t)
		report, err := migrate.Run(t.Context(), s, migrate.NewREST(strings.NewReader(text), "f"), migrate.Options{})
		if err == nil || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q…: %v, want %s", text, err, want)
		}
		if there := strings.Count(dump(t, s), "patchlog"); there != report.Sessions[migrate.Created] || there > 1 {
			t.Errorf("%.40q…: %d sessions are there, %+v", text, there, report)
		}
	}
	for text, want := range map[string]string{
		`1`:             `f: session 1 of the input: invalid: want a session object, not 1`,
		`"x"`:           `want a session object, not "x"`,
		`{}`:            `want a string appName`,
		`{"appName":1}`: `want a string appName`,
		strings.Replace(python, `"events":[`, `"events":[1,`, 1):                                 `event 1: invalid`,
		strings.Replace(python, `"events":[`, `"events":[{"patchType":"pin"},`, 1):               `this is a patch, not an event`,
		strings.Replace(python, `"events":[`, `"events":[],"evens":[`, 1):                        ``, // an unknown member is ignored
		strings.Replace(python, `"events"`, `"evens"`, 1):                                        `want an array events`,
		strings.Replace(python, `"events":[`, `"events":null,"x":[`, 1):                          `want an array events`,
		strings.Replace(python, `"state":{`, `"state":[],"x":{`, 1):                              `want an object state`,
		strings.Replace(python, `"n":1.0`, `"n":1,"n":2`, 1):                                     `state/n`,
		strings.Replace(python, `"appName"`, `"app_name":"a","appName"`, 1):                      `appName occurs in two spellings`,
		strings.Replace(python, `1748772001.5`, `1e300`, 1):                                      `lastUpdateTime: invalid`,
		strings.Replace(python, `1748772001.5`, `true`, 1):                                       `lastUpdateTime: invalid`,
		strings.Replace(python, `"text":"hi"`, `"text":"\ud800"`, 1):                             `events/0/content/parts/0/text`,
		strings.Replace(python, `"id":"1"`, `"id":"`+strings.Repeat("x", 2000)+`"`, 1):           `session`,
		strings.Replace(python, `[1e2]`, strings.Repeat("[", 900)+strings.Repeat("]", 900), 1):   ``,
		strings.Replace(python, `[1e2]`, strings.Repeat("[", 1200)+strings.Repeat("]", 1200), 1): `nested deeper`,
	} {
		s := openMemory(t)
		other := strings.Replace(python, `"id":"1"`, `"id":"other"`, 1)
		_, report := runSource(t, s, migrate.Options{}, migrate.NewREST(strings.NewReader(other), "f"))
		last, report := runSource(t, s, migrate.Options{}, migrate.NewREST(strings.NewReader(text+"\n"+other), "f"))
		if last.Key.Session != "other" || report.Sessions[migrate.Unchanged] != 1 {
			t.Errorf("%.60q…: the session after it: %+v", text, report)
		}
		failed := report.Sessions[migrate.Failed]
		if want == "" {
			if failed > 0 {
				t.Errorf("%.60q… is refused", text)
			}
			continue
		}
		var result migrate.Result
		testlog.NoError(t, testlog.ErrorOf(migrate.Run(t.Context(), s, migrate.NewREST(strings.NewReader(text), "f"), migrate.Options{Session: func(r migrate.Result) error { result = r; return nil }})))
		if result.Status != migrate.Failed || !errors.Is(result.Err, store.ErrInvalid) && !errors.Is(result.Err, store.ErrTooLarge) || !strings.Contains(result.Err.Error(), want) {
			t.Errorf("%.60q…: %s, %v, want %s", text, result.Status, result.Err, want)
		}
		if n := strings.Count(dump(t, s), `"patchlog"`); n != 1 {
			t.Errorf("%.60q…: %d sessions are there", text, n)
		}
	}
}

// If sessions have different values of a shared key, the last value is used, and the difference is reported. Some
// exports list sessions without their events.
func TestRESTDifferences(t *testing.T) {
	session := func(id, user, state, events string) string {
		return fmt.Sprintf(`{"id":%q,"appName":"shop","userId":%q,"state":%s,"events":%s,"lastUpdateTime":1748772001,"displayName":"x"}`, id, user, state, events)
	}
	text := session("1", "ada", `{"app:x":1,"user:y":1}`, `[{"author":"a"}]`) + session("2", "ada", `{"app:x":2,"user:y":1}`, `[]`) + session("1", "bob", `{"user:y":2}`, `[]`)
	s := openMemory(t)
	last, report := runSource(t, s, migrate.Options{}, migrate.NewREST(strings.NewReader(text), "f"))
	equal(t, "differences", differencesText(report.Source), `state key "app:x": session shop/ada/2 has the value 2, and earlier sessions have 1; the last value is used`)
	equal(t, "state", stateJSON(t, s, key), `{"app:x":2,"user:y":1}`)
	if words := differencesText(last.Differences); !strings.Contains(words, `the session's field "displayName" is left out`) || !strings.Contains(words, "it has no events") {
		t.Errorf("differences %s", words)
	}
}
