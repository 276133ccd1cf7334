package migrate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// compactionRecord returns a compaction record that covers the events from second from to second to.
func compactionRecord(id string, second, from, to int, text string) string {
	start := float64(day.Add(10 * time.Hour).Unix())
	return fmt.Sprintf(`{"id":%q,"invocationId":%q,"author":"user","timestamp":"2025-06-01T10:00:%02dZ","actions":{"compaction":{"startTimestamp":%f,"endTimestamp":%f,"compactedContent":{"role":"model","parts":[{"text":%q}]}}}}`,
		id, id, second, start+float64(from), start+float64(to), text)
}

// visibleTexts returns the texts that a model sees.
func visibleTexts(t testing.TB, s *store.Store) string {
	t.Helper()
	got := testlog.Must(s.Get(t.Context(), key))(t)
	var texts []string
	for _, e := range got.View.Events() {
		text := "-"
		for _, p := range e.Content().Parts() {
			text = p.Text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " | ")
}

// Migrate replaces the events that a compaction record covers by a summary. If this is impossible, it reports the
// compaction record and keeps it as an event.
func TestCompactions(t *testing.T) {
	events := []string{
		eventText("e1", 1, `{"a":1}`), eventText("e2", 2, ""), compactionRecord("c1", 3, 1, 2, "one and two"),
		compactionRecord("c2", 4, 30, 40, "nothing"), eventText("e5", 5, ""), eventText("e6", 6, ""),
		`{"id":"c3","author":"user","timestamp":"2025-06-01T10:00:07Z","customMetadata":{"_adk_compaction":{"startTimestamp":"2025-06-01T10:00:04Z","endTimestamp":"2025-06-01T10:00:06Z","compactedContent":{"parts":[{"text":"five and six"}]}}}}`,
	}
	s := openMemory(t)
	r, report := run(t, s, migrate.Options{}, newSession(t, `{"a":1}`, events...))
	equal(t, "adopted", strings.Join(r.Adopted, " "), "c1 c3")
	if len(r.NotAdopted) != 1 || r.NotAdopted[0].EventID != "c2" || report.Adopted != 2 || report.NotAdopted != 1 {
		t.Errorf("left %v, report %+v", r.NotAdopted, report)
	}
	equal(t, "what is visible", visibleTexts(t, s), "one and two | - | five and six")
	equal(t, "state", stateJSON(t, s, key), `{"a":1}`)
	before := dump(t, s)
	wantStatus(t, s, migrate.Unchanged, migrate.Options{}, newSession(t, `{"a":1}`, events...))
	equal(t, "again", dump(t, s), before)

	s = openMemory(t)
	r, _ = run(t, s, migrate.Options{KeepCompactions: true}, newSession(t, `{"a":1}`, events...))
	equal(t, "kept", r.Added, len(events))
	r, _ = run(t, s, migrate.Options{}, newSession(t, `{"a":1}`, events...))
	equal(t, "kept, then without", r.Status, migrate.Unchanged)
}

// If a source grows and is migrated several times, the log is the same as after one migration at the end.
func TestGrowth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var events []*patch.Event
		state := map[string]patch.Value{"start": values(t, `{"v":1.0}`)["v"]}
		last := 0
		for i := range rapid.IntRange(1, 12).Draw(rt, "events") {
			var e *patch.Event
			var err error
			if i > 0 && rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
				from := rapid.IntRange(0, i).Draw(rt, "from")
				e, err = patch.ParseEvent([]byte(compactionRecord(fmt.Sprint("c", i), i, max(from, last), i-1, fmt.Sprint("summary ", i))))
				last = i
			} else {
				drawn := fuzz.Event(fmt.Sprint("e", i), events).Draw(rt, "event")
				var text []byte
				text = testlog.Must(drawn.MarshalJSON())(t)
				stamp := fmt.Sprintf(`"timestamp":"2025-06-01T10:00:%02dZ"`, i)
				if !drawn.Timestamp().IsZero() {
					rest := strings.SplitN(string(text), `"timestamp":"`, 2)
					text = []byte(rest[0] + stamp + rest[1][strings.Index(rest[1], `"`)+1:])
				} else {
					text = []byte(`{` + stamp + `,` + string(text[1:]))
				}
				e, err = patch.ParseEvent(text)
			}
			testlog.NoError(t, err)
			if e.Partial() {
				continue
			}
			events = append(events, e)
		}
		session := func(n int) *migrate.Session {
			s := &migrate.Session{Key: key, Created: day, Updated: day.AddDate(0, 0, n), Events: events[:n], State: map[string]patch.Value{}}
			for k, v := range state {
				s.State[k] = v
			}
			for _, e := range s.Events {
				for c := range e.Changes() {
					s.State[c.Key] = c.Value
				}
			}
			return s
		}
		for _, e := range events { // add keys that no event sets, which belong to the initial state
			for c := range e.Changes() {
				delete(state, c.Key)
			}
		}
		once, steps := openMemory(t), openMemory(t)
		run(t, once, migrate.Options{}, session(len(events)))
		for n := 0; n < len(events); n += rapid.IntRange(1, 4).Draw(rt, "more") {
			run(t, steps, migrate.Options{}, session(n))
		}
		r, _ := run(t, steps, migrate.Options{}, session(len(events)))
		if r.Err != nil {
			rt.Fatal(r.Err)
		}
		if a, b := dump(t, once), dump(t, steps); a != b {
			rt.Fatalf("at once\n%s\nin steps\n%s", a, b)
		}
		if r, _ = run(t, steps, migrate.Options{}, session(len(events))); r.Status != migrate.Unchanged {
			rt.Fatalf("again: %s, %v", r.Status, r.Err)
		}
	})
}
