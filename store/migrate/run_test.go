package migrate_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// A session is migrated with its creation time, its events unchanged, and its state, including number literals.
func TestSession(t *testing.T) {
	s := openMemory(t)
	r, report := run(t, s, migrate.Options{}, newSession(t, `{"n":1.0,"m":1e2,"big":9007199254740993,"set":2,"none":null}`,
		eventText("e1", 1, `{"set":1}`), eventText("e2", 2, `{"set":2,"app:x":9}`)))
	equal(t, "status", r.Status, migrate.Created)
	equal(t, "counts", [3]int{r.Added, r.Present, int(r.Seq)}, [3]int{2, 0, 2})
	equal(t, "differences", differencesText(r.Differences), "")
	equal(t, "report", report.Sessions[migrate.Created], 1)
	equal(t, "log", export(t, s, key), `{"patchlog":1,"initialState":{"big":9007199254740993,"m":1e2,"n":1.0,"none":null}}
{"seq":1,"id":"e1","invocationId":"i","author":"user","timestamp":"2025-06-01T10:00:01Z","content":{"role":"user","parts":[{"text":"text of e1"}]},"actions":{"stateDelta":{"set":1}}}
{"seq":2,"id":"e2","invocationId":"i","author":"user","timestamp":"2025-06-01T10:00:02Z","content":{"role":"user","parts":[{"text":"text of e2"}]},"actions":{"stateDelta":{"set":2,"app:x":9}}}
`)
	// The source yields no shared values, so the state lacks app:x.
	equal(t, "state", stateJSON(t, s, key), `{"big":9007199254740993,"m":1e2,"n":1.0,"none":null,"set":2}`)
	info := testlog.Must(s.Info(t.Context(), key))(t)
	equal(t, "created", info.Created, day)
}

// The status of a session follows the growth of the source and of the target.
func TestStatus(t *testing.T) {
	s := openMemory(t)
	e1, e2, e3, state := eventText("e1", 1, ""), eventText("e2", 2, ""), eventText("e3", 3, ""), `{"k":1}`
	step := func(want migrate.Status, added int, err error, events ...string) {
		t.Helper()
		before := dump(t, s)
		r, _ := run(t, s, migrate.Options{DryRun: true}, newSession(t, state, events...))
		equal(t, "dry run", dump(t, s), before)
		again, _ := run(t, s, migrate.Options{}, newSession(t, state, events...))
		for _, r := range []migrate.Result{r, again} {
			equal(t, "status", r.Status, want)
			equal(t, "added", r.Added, added)
			if !errors.Is(r.Err, err) || (err == nil) != (r.Err == nil) {
				t.Errorf("error %v, want %v", r.Err, err)
			}
		}
		if added == 0 && want != migrate.Created {
			equal(t, "content", dump(t, s), before)
		}
	}
	step(migrate.Created, 0, nil)
	step(migrate.Extended, 1, nil, e1)
	step(migrate.Unchanged, 0, nil, e1)
	step(migrate.Extended, 1, nil, e1, e2)
	step(migrate.Unchanged, 0, nil, e1, e2)
	step(migrate.Ahead, 0, nil, e1)
	step(migrate.Conflict, 0, store.ErrConflict, e2, e1)
	step(migrate.Conflict, 0, store.ErrConflict, e1, e3)
	step(migrate.Conflict, 0, store.ErrConflict, e1, strings.Replace(e2, "text of", "other", 1))
	own := testlog.Must(patch.NewEvent(patch.Fields{ID: "own", Author: "user"}))(t)
	testlog.NoError(t, testlog.ErrorOf(s.AppendEvents(t.Context(), key, []*patch.Event{own}, store.AppendOptions{})))
	step(migrate.Ahead, 0, nil, e1, e2)
	state = `{"k":2}` // now the source's state differs from the target's
	step(migrate.Ahead, 0, nil, e1, e2)
	step(migrate.Conflict, 0, store.ErrConflict, e1, e2, e3)
}

// Events with equal times keep the order of the first migration.
func TestTies(t *testing.T) {
	s := openMemory(t)
	a, b, c, d := eventText("a", 1, ""), eventText("b", 1, ""), eventText("c", 1, ""), eventText("d", 2, "")
	run(t, s, migrate.Options{}, newSession(t, `{}`, a, b))
	r := wantStatus(t, s, migrate.Extended, migrate.Options{}, newSession(t, `{}`, b, c, a, d))
	equal(t, "added", r.Added, 2)
	for range 2 {
		wantStatus(t, s, migrate.Unchanged, migrate.Options{}, newSession(t, `{}`, c, b, a, d))
	}
	wantStatus(t, s, migrate.Conflict, migrate.Options{}, newSession(t, `{}`, d, a, b, c))
}

// If replaying the events does not give the source's state, the migration adds an event that sets this state. The
// session can still grow in later migrations.
func TestState(t *testing.T) {
	events := []string{eventText("e1", 1, `{"a":1,"b":{"x":[1,2.0]},"gone":true}`), eventText("e2", 2, `{"a":2,"f":1.0}`)}
	const state = `{"a":7,"b":{"x":[1,2]},"new":"n","f":1}`
	s := openMemory(t)
	r := wantStatus(t, s, migrate.Created, migrate.Options{}, newSession(t, state, events...))
	equal(t, "differences", differencesText(r.Differences), `state key "a": the events set it to 2, but the source's state has 7; an added event sets this value
state key "gone": the events set it to true, but the source's state lacks it; it is kept`)
	equal(t, "state", stateJSON(t, s, key), `{"a":7,"b":{"x":[1,2.0]},"f":1.0,"gone":true,"new":"n"}`)
	lines := strings.Split(export(t, s, key), "\n")
	equal(t, "header", lines[0], `{"patchlog":1,"initialState":{"new":"n"}}`)
	if e := lines[3]; !strings.Contains(e, `"invocationId":"i","author":"user","timestamp":"2025-06-01T01:00:00Z","actions":{"stateDelta":{"a":7}},"customMetadata":{"patchlog":{"migration":"state"}}`) {
		t.Errorf("the event is %s", e)
	}
	before := dump(t, s)
	wantStatus(t, s, migrate.Unchanged, migrate.Options{}, newSession(t, state, events...))
	equal(t, "again", dump(t, s), before)

	events = append(events, eventText("e3", 3, `{"a":8,"new":"o"}`))
	r = wantStatus(t, s, migrate.Extended, migrate.Options{}, newSession(t, `{"a":8,"b":{"x":[1,2]},"new":"p","f":1}`, events...))
	equal(t, "added", r.Added, 2) // the event e3, and the event that sets the key new
	equal(t, "state", stateJSON(t, s, key), `{"a":8,"b":{"x":[1,2.0]},"f":1.0,"gone":true,"new":"p"}`)
	wantStatus(t, s, migrate.Extended, migrate.Options{}, newSession(t, `{"a":9,"b":{"x":[1,2]},"new":"p","f":1}`, events...))
	equal(t, "state", stateJSON(t, s, key), `{"a":9,"b":{"x":[1,2.0]},"f":1.0,"gone":true,"new":"p"}`)

	s = openMemory(t)
	for _, status := range []migrate.Status{migrate.Created, migrate.Unchanged} {
		r = wantStatus(t, s, status, migrate.Options{ReplayedState: true}, newSession(t, state, events...))
		equal(t, "seq", r.Seq, 3)
		equal(t, "differences", differencesText(r.Differences), `state key "a": the events set it to 8, but the source's state has 7
state key "new": the events set it to "o", but the source's state has "n"
state key "gone": the events set it to true, but the source's state lacks it; it is kept`)
	}
	r, _ = run(t, openMemory(t), migrate.Options{}, newSession(t, `{"temp:x":1,"user:y":2}`))
	equal(t, "differences of keys with a prefix", strings.Count(differencesText(r.Differences), "it is left out"), 2)
}

// If a source yields a session more than once, the session is migrated once. Concatenated exports are such a source.
func TestRepeated(t *testing.T) {
	s := openMemory(t)
	e1, e2 := eventText("e1", 1, `{"a":1}`), eventText("e2", 2, `{"a":2}`)
	all := []*migrate.Session{newSession(t, `{"a":1}`, e1), newSession(t, `{"a":5}`, e1), newSession(t, `{"a":2}`, e1, e2), newSession(t, `{"a":1}`, e1)}
	_, report := run(t, s, migrate.Options{}, all...)
	equal(t, "added", report.Added, 2)
	before := dump(t, s)
	_, report = run(t, s, migrate.Options{}, all...)
	equal(t, "added again", report.Added, 0)
	equal(t, "again", dump(t, s), before)
	r, _ := run(t, openMemory(t), migrate.Options{}, all[:2]...)
	equal(t, "differences", differencesText(r.Differences), "the source has the session twice, with different states; the first one is used")
}

// An event without an id gets the same id in each run. Ids that occur twice are reported, and partial events are not
// logged. Nothing else is lost, and repeating the run adds nothing.
func TestIDs(t *testing.T) {
	events := []string{
		`{"author":"user","content":{"parts":[{"text":"<&>"}]}}`, `{"author":"user","content":{"parts":[{"text":"<&>"}]}}`,
		eventText("e", 1, ""), strings.Replace(eventText("e", 2, `{"n":1.0}`), "text of", "again", 1), eventText("e", 2, ""), eventText("e", 2, ""),
		`{"id":"p","author":"user","partial":true}`, `{"id":"t","author":"user","actions":{"stateDelta":{"temp:x":1}}}`,
	}
	s := openMemory(t)
	var first string
	for i, status := range []migrate.Status{migrate.Created, migrate.Unchanged, migrate.Extended} {
		if i == 2 {
			events = append(events, `{"author":"user","content":{"parts":[{"text":"more"}]}}`)
		}
		next := newSession(t, `{"n":1.0}`, events...)
		next.Updated = next.Updated.AddDate(0, 0, i) // events without a time get this time
		r := wantStatus(t, s, status, migrate.Options{}, next)
		equal(t, "partial", strings.Contains(differencesText(r.Differences), `event "p": it is a partial event of a stream`), true)
		equal(t, "temp", strings.Contains(differencesText(r.Differences), `event "t": state key "temp:x"`), true)
		equal(t, "without ids", strings.Count(differencesText(r.Differences), "has no id"), 2+i/2)
		equal(t, "without times", strings.Contains(differencesText(r.Differences), "events have no time"), true)
		equal(t, "repeated ids", strings.Count(differencesText(r.Differences), `event "e": events 3 and`), 3)
		if log := export(t, s, key); i == 0 {
			first = log
		} else {
			equal(t, "log", strings.HasPrefix(log, first), true)
		}
	}
	equal(t, "records", strings.Count(first, `"seq"`), 7)
	for _, want := range []string{`"text":"<&>"`, `"text":"again e"`, `"stateDelta":{"n":1.0}`, `"timestamp":"2025-06-01T01:00:00Z"`} {
		if !strings.Contains(first, want) {
			t.Errorf("%s is not in\n%s", want, first)
		}
	}
}

// Values of shared scopes are written after all sessions. If a value differs in the target, it is kept, or
// overwritten with OverwriteShared.
func TestShared(t *testing.T) {
	s := openMemory(t)
	other := store.Key{App: "shop", User: "bob", Session: "1"}
	testlog.NoError(t, testlog.ErrorOf(s.Create(t.Context(), other, map[string]any{"app:x": 1, "user:y": "mine"}, store.CreateOptions{})))
	g := &fakeSource{sessions: []*migrate.Session{newSession(t, `{}`, eventText("e1", 1, `{"app:new":1,"user:z":1}`))}, shared: []migrate.Shared{
		{App: "shop", Values: values(t, `{"app:x":2,"app:new":1.0}`)},
		{App: "shop", User: "bob", Values: values(t, `{"user:y":"mine","user:ü":[]}`)},
		{App: "shop", User: "app", Values: values(t, `{"user:n":1}`)},
		{App: "", Values: values(t, `{"app:n":1}`)},
	}}
	_, report := runSource(t, s, migrate.Options{DryRun: true}, g)
	equal(t, "dry run, added", report.SharedAdded, 3)
	equal(t, "dry run", stateJSON(t, s, other), `{"app:x":1,"user:y":"mine"}`)
	_, report = runSource(t, s, migrate.Options{}, g)
	equal(t, "added", report.SharedAdded, 3)
	equal(t, "different", strings.Join(report.SharedDifferent, " "), "app/shop/app:x")
	equal(t, "state", stateJSON(t, s, key), `{"app:new":1.0,"app:x":1}`)
	equal(t, "state", stateJSON(t, s, other), `{"app:new":1.0,"app:x":1,"user:y":"mine","user:ü":[]}`)
	if err := report.SharedErr; err == nil || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), `app ""`) {
		t.Errorf("an app without a name: %v", err)
	}
	_, report = runSource(t, s, migrate.Options{OverwriteShared: true, DryRun: true}, g)
	equal(t, "state", stateJSON(t, s, key), `{"app:new":1.0,"app:x":1}`)
	_, report = runSource(t, s, migrate.Options{OverwriteShared: true}, g)
	equal(t, "different", len(report.SharedDifferent), 1)
	equal(t, "state", stateJSON(t, s, key), `{"app:new":1.0,"app:x":2}`)
	_, report = runSource(t, s, migrate.Options{}, g)
	equal(t, "again", report.SharedAdded+len(report.SharedDifferent), 0)

	_, report = runSource(t, openMemory(t), migrate.Options{}, &fakeSource{shared: g.shared})
	equal(t, "into a store without sessions, added", report.SharedAdded, 5)
	if !errors.Is(report.SharedErr, store.ErrInvalid) {
		t.Errorf("into a store without sessions: %v", report.SharedErr)
	}
}

// If a session cannot be migrated, Run continues with the next session. If an error would also affect the next
// session, Run ends.
func TestErrors(t *testing.T) {
	s := openMemory(t)
	bad, nilEvent, fine := newSession(t, `{}`), newSession(t, `{}`), newSession(t, `{}`)
	bad.Key.App = ""
	nilEvent.Key.Session, nilEvent.Events = "nil", []*patch.Event{nil}
	broken := errors.New("broken")
	g := &fakeSource{sessions: []*migrate.Session{bad, nil, nilEvent, fine}, errs: map[int]error{1: &migrate.SessionError{Key: key, Err: broken}}}
	last, report := runSource(t, s, migrate.Options{}, g)
	equal(t, "failed", report.Sessions[migrate.Failed], 3)
	equal(t, "last", last.Status, migrate.Created)

	g.errs[2] = broken
	done := 0
	report, err := migrate.Run(t.Context(), s, g, migrate.Options{Progress: func(n, of int) { done = n }})
	if !errors.Is(err, broken) || done != 2 || report.Sessions[migrate.Failed] != 2 {
		t.Errorf("a source that breaks: %v after %d sessions, %+v", err, done, report)
	}
	stop := errors.New("stop")
	if _, err := migrate.Run(t.Context(), s, g, migrate.Options{Session: func(migrate.Result) error { return stop }}); !errors.Is(err, stop) {
		t.Errorf("a callback that fails: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := migrate.Run(gone, s, &fakeSource{sessions: []*migrate.Session{newSession(t, `{}`, eventText("x", 1, ""))}}, migrate.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: %v", err)
	}
	for _, args := range []struct {
		s *store.Store
		g migrate.Source
	}{{nil, g}, {s, nil}} {
		if _, err := migrate.Run(t.Context(), args.s, args.g, migrate.Options{}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("without a store or a source: %v", err)
		}
	}
	testlog.NoError(t, s.Close())
	if _, err := migrate.Run(t.Context(), s, &fakeSource{sessions: []*migrate.Session{fine}}, migrate.Options{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a store that is closed: %v", err)
	}
}
