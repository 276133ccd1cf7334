package adk_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Records of compaction as ADK for Go and for Python write them into an event's actions.
const (
	goRecord = `{"startTimestamp":"2026-01-02T03:04:05.123456789Z","endTimestamp":"2026-01-02T03:04:06.5Z",` +
		`"compactedContent":{"parts":[{"text":"told"}],"role":"model"},` +
		`"excludedEvents":[{"invocationId":"i","timestamp":"2026-01-02T03:04:05.987654321Z"}]}`
	pythonRecord = `{"startTimestamp":1767323045.123457,"endTimestamp":1767323046.5,"compactedContent":{"role":"model","parts":[{"text":"told"}]}}`
)

// withRecord puts a record into an event's actions, if this ADK has a place for it.
func withRecord(t *testing.T, e *session.Event) *session.Event {
	t.Helper()
	no(t, json.Unmarshal([]byte(`{"compaction":`+goRecord+`}`), &e.Actions))
	if recordIn(t, e) == "" {
		t.Skip("this version of ADK has no compaction records")
	}
	return e
}

// recordIn is the record in an event's actions, as ADK writes it, or "".
func recordIn(t *testing.T, e *session.Event) string {
	t.Helper()
	text, err := json.Marshal(e.Actions)
	no(t, err)
	var actions struct{ Compaction json.RawMessage }
	no(t, json.Unmarshal(text, &actions))
	return string(actions.Compaction)
}

// ADK's records come back whole.
func TestRecordsComeBackEqual(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		e := withRecord(t, &session.Event{ID: "r", Author: "user", InvocationID: "e-1"})
		sess := create(t, s, "s", nil)
		no(t, s.AppendEvent(t.Context(), sess, e))
		for _, got := range []session.Session{sess, get(t, s, "s")} {
			equal(t, "event", got.Events().At(0), e)
			equal(t, "record", recordIn(t, got.Events().At(0)), recordIn(t, e))
		}
	})
}

// A record that this ADK cannot hold, or that another has written, is kept as it came, and what
// ADK can read of it is read.
func TestRecordsOfOtherVersions(t *testing.T) {
	db := opened(t)(store.OpenMemory(store.Options{}))
	svc := newService(t, db)
	sess := create(t, svc, "s", nil)
	for id, record := range map[string]string{"go": goRecord, "python": pythonRecord} {
		text := `{"id":"` + id + `","author":"user","actions":{"stateDelta":{"` + id + `":1},"compaction":` + record + `}}`
		e, err := patch.ParseEvent([]byte(text))
		no(t, err)
		_, err = db.AppendEvents(t.Context(), store.Key{App: "app", User: "user", Session: "s"}, store.AppendOptions{}, e)
		no(t, err)
	}
	for r, err := range svc.RawEvents(t.Context(), sess, 1) {
		no(t, err)
		want := map[string]string{"go": goRecord, "python": pythonRecord}[r.ID()]
		if !strings.Contains(r.Event.String(), `"compaction":`+want) {
			t.Errorf("the log has %s", r.Event)
		}
		e, err := adk.SessionEvent(r.Event)
		no(t, err)
		equal(t, "state", e.Actions.StateDelta, map[string]any{r.ID(): 1.0})
		got := recordIn(t, e)
		if got == "" {
			continue // an ADK without them
		}
		from := map[string]string{"go": "2026-01-02T03:04:05.123456789Z", "python": "2026-01-02T03:04:05.123457Z"}[r.ID()]
		if !strings.Contains(got, `"startTimestamp":"`+from+`"`) || !strings.Contains(got, `"told"`) {
			t.Errorf("ADK reads %s", got)
		}
	}
}

// To ADK, a summary of patchlog's is an event like others: it stands where it belongs, and is
// no record that ADK is to apply.
func TestSummariesAreNoRecordsToADK(t *testing.T) {
	svc := compacted(t, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2}})
	exchanges(t, svc, "app", 4)
	svc.Settle(t)
	summaries := 0
	for i, e := range get(t, svc, "s").(*adk.Session).View().Entries() {
		got := get(t, svc, "s").Events().At(i)
		if record := recordIn(t, got); record != "" {
			t.Errorf("ADK is given the record %s", record)
		}
		if e.Summary {
			summaries++
			equal(t, "role", got.Content.Role, genai.RoleUser)
		}
	}
	if summaries == 0 {
		t.Error("nothing was summarised")
	}
}

// Times in Unix seconds become such as ADK for Go reads; all else stays.
func TestGoTimes(t *testing.T) {
	for _, c := range []struct{ give, want string }{
		{`{"a":[1.0],"compaction":` + pythonRecord + `}`,
			`{"a":[1.0],"compaction":{"compactedContent":{"role":"model","parts":[{"text":"told"}]},"endTimestamp":"2026-01-02T03:04:06.5Z","startTimestamp":"2026-01-02T03:04:05.123457Z"}}`},
		{`{"compaction":{"startTimestamp":0,"endTimestamp":null,"excludedEvents":[{"invocationId":"i","timestamp":"1970-01-01T00:00:01.5Z","x":1}]}}`,
			`{"compaction":{"endTimestamp":null,"excludedEvents":[{"invocationId":"i","timestamp":"1970-01-01T00:00:01.5Z","x":1}],"startTimestamp":"1970-01-01T00:00:00Z"}}`},
		{`{"compaction":{"startTimestamp":1e300,"endTimestamp":"soon","excludedEvents":null}}`,
			`{"compaction":{"endTimestamp":"soon","excludedEvents":null,"startTimestamp":1e300}}`},
		{`{"compaction":7}`, ``}, {`{}`, ``}, {`7`, ``},
	} {
		equal(t, c.give, string(adk.WithGoTimes(json.RawMessage(c.give))), c.want)
	}
}

// What a newer ADK's types have besides is kept too.
func TestFieldsOfNewerVersions(t *testing.T) {
	type Response struct{ Content, Voice string }
	type Event struct {
		Response
		ID         string `json:"id"`
		Mood       string `json:"mood,omitempty"`
		NotInJSON  int    `json:"-"`
		own        int
		LongNumber time.Duration
	}
	_ = Event{own: 1}
	equal(t, "fields", adk.MoreFields(reflect.TypeFor[Event](), "id"), []string{"mood", "longNumber"})
	equal(t, "fields", adk.MoreFields(reflect.TypeFor[Response](), "content"), []string{"voice"})
}

// Where ADK has compaction records, it tells a session's events apart by their addresses: a session gives the same
// again, after appends and patches too, and another session others.
func TestSameEvents(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	sess.(*adk.Session).GiveSameEvents()
	for _, id := range []string{"a", "b", "c"} {
		no(t, svc.AppendEvent(t.Context(), sess, text(id, "user", id)))
	}
	b := sess.Events().At(1)
	for e := range sess.Events().All() {
		if (e == b) != (e.ID == "b") {
			t.Errorf("%s is given as another event", e.ID)
		}
	}
	_, err := svc.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
	no(t, err)
	if sess.Events().At(0) != b {
		t.Error("after a patch, it is another event")
	}
	if get(t, svc, "s").Events().At(0) == b {
		t.Error("two sessions share an event")
	}
}
