package adk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/server/adkrest"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	memstore "github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func getHistory(t *testing.T, s session.Service, req session.GetRequest) *adk.Session {
	t.Helper()
	req.AppName, req.UserID, req.SessionID = "app", "user", "s"
	r, err := s.Get(adk.WithHistory(t.Context()), &req)
	noError(t, err)
	return r.Session.(*adk.Session)
}

// createSummarised creates a session with the messages e0 to e5. A first summary covers e1 to e4, and a second summary
// covers e0 and the first summary.
func createSummarised(t *testing.T, s *adk.Service) {
	t.Helper()
	sess := create(t, s, "s", map[string]any{"k": 1})
	for i, id := range []string{"e0", "e1", "e2", "e3", "e4", "e5"} {
		e := textEvent(id, []string{"user", "app"}[i%2], "words of "+id)
		e.Timestamp = time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)
		e.Actions.StateDelta = map[string]any{"last": id}
		noError(t, s.AppendEvent(t.Context(), sess, e))
	}
	for i, count := range []int{4, 2} {
		e, err := adk.NewEvent(textEvent([]string{"s1", "s2"}[i], "user", "the summary"))
		noError(t, err)
		noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSummarise(1-i, count, e)}, store.PatchOptions{})))
	}
	equal(t, "visible", ids(sess), []string{"s2", "e5"})
}

func TestHistory(t *testing.T) {
	onStoreAndBases(t, bases[:1], adk.Options{}, func(t *testing.T, s *adk.Service) {
		createSummarised(t, s)
		all := []string{"e0", "e1", "e2", "e3", "e4", "e5"}
		sess := getHistory(t, s, session.GetRequest{})
		equal(t, "history", ids(sess), all)
		equal(t, "state", stateOf(sess), map[string]any{"k": 1, "last": "e5"})
		equal(t, "at", sess.Events().At(1).Content.Parts[0].Text, "words of e1")
		if sess.Events().At(6) != nil || sess.Events().At(-1) != nil {
			t.Error("At returned an event for an index out of range")
		}
		sess.Events().At(1).Content.Parts[0].Text = "changed"
		equal(t, "at, again", sess.Events().At(1).Content.Parts[0].Text, "words of e1")
		for range sess.Events().All() {
			break
		}
		// A session that shows its history refuses patches, because their indices would be indices into the
		// history.
		err := errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{}))
		wantError(t, err, patch.ErrInvalid)
		if !strings.Contains(err.Error(), "WithHistory") {
			t.Errorf("the error is %v", err)
		}
		wantError(t, errOf(s.Preview(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})), patch.ErrInvalid)
		equal(t, "visible", ids(get(t, s, "s")), []string{"s2", "e5"})

		equal(t, "the last two", ids(getHistory(t, s, session.GetRequest{NumRecentEvents: 2})), []string{"e4", "e5"})
		equal(t, "the last ten", ids(getHistory(t, s, session.GetRequest{NumRecentEvents: 10})), all)
		since := time.Date(2026, 1, 2, 3, 4, 3, 0, time.UTC)
		equal(t, "since", ids(getHistory(t, s, session.GetRequest{After: since})), []string{"e3", "e4", "e5"})
		equal(t, "since, of the last two", ids(getHistory(t, s, session.GetRequest{After: since, NumRecentEvents: 2})), []string{"e4", "e5"})
	})
}

// After its first write, a session shows the visible log instead of its history.
func TestHistoryEndsWithAWrite(t *testing.T) {
	onStoreAndBases(t, bases[:1], adk.Options{}, func(t *testing.T, s *adk.Service) {
		createSummarised(t, s)
		sess := getHistory(t, s, session.GetRequest{})
		equal(t, "history", len(ids(sess)), 6)
		noError(t, s.AppendEvent(t.Context(), sess, textEvent("e6", "user", "more")))
		equal(t, "after an append", ids(sess), []string{"s2", "e5", "e6"})

		filtered := getHistory(t, s, session.GetRequest{NumRecentEvents: 1})
		equal(t, "filtered", ids(filtered), []string{"e6"})
		noError(t, s.AppendEvent(t.Context(), filtered, textEvent("e7", "user", "more")))
		equal(t, "filtered, after an append", ids(filtered), []string{"e6", "e7"})

		rewound := getHistory(t, s, session.GetRequest{})
		noError(t, errOf(s.Rewind(t.Context(), rewound, "inv-e5")))
		equal(t, "after a rewind", ids(rewound), []string{"s2"})
		equal(t, "history after a rewind", ids(getHistory(t, s, session.GetRequest{})), []string{"e0", "e1", "e2", "e3", "e4"})
	})
}

// In a history, a summary that covers no event has the author "summary", so that people do not mistake it for a
// user's message.
func TestHistoryMarksSummaries(t *testing.T) {
	s := inMemory(t)
	sess := create(t, s, "s", nil)
	noError(t, s.AppendEvent(t.Context(), sess, textEvent("e0", "user", "hello")))
	summary, err := patch.ParseEvent([]byte(`{"id":"other","author":"user","content":{"role":"user","parts":[{"text":"They said hello."}]},"actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}}`))
	noError(t, err)
	noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(1, 0, summary)}, store.PatchOptions{})))
	e := getHistory(t, s, session.GetRequest{}).Events().At(1)
	equal(t, "author", e.Author, "summary")
	equal(t, "role", e.Content.Role, "model")
	e = get(t, s, "s").Events().At(1)
	equal(t, "what a model sees", e.Author+" "+e.Content.Role, "user user")
}

// ADK's REST server returns the history to people and the visible log to models. If the history cannot be read, the
// request fails, and the memory service receives nothing.
func TestHistoryOverREST(t *testing.T) {
	b := &brokenHiddenReads{Backend: new(memstore.Backend)}
	s := newService(t, mustOpen(t)(store.New(b, store.Options{})))
	createSummarised(t, s)
	m := &scriptedModel{}
	c := restServer(t, s, m)
	const path = "/apps/app/users/user/sessions/s"
	eventIDs := func(sess map[string]any) (ids []string) {
		for _, e := range sess["events"].([]any) {
			ids = append(ids, e.(map[string]any)["id"].(string))
		}
		return ids
	}
	all := []string{"e0", "e1", "e2", "e3", "e4", "e5"}
	equal(t, "history", eventIDs(c.do("GET", path, "", 200)), all)
	c.list("POST", "/run", runRequest("turn 3", false), 200)
	prompt := m.drain()[0]
	equal(t, "contents of the prompt", len(prompt), 3)
	equal(t, "the prompt begins with", prompt[0].Parts[0].Text, "the summary")
	if got := eventIDs(c.do("GET", path, "", 200)); len(got) <= 6 || !slices.Equal(got[:6], all) || slices.Contains(got, "s2") {
		t.Errorf("history after a run: %v", got)
	}
	base := &recordingMemory{}
	b.broken = true
	if body := c.text("GET", path, "", 500); !strings.Contains(body, storetest.ErrInjected.Error()) || strings.Contains(body, "{") {
		t.Errorf("the answer is %s", body)
	}
	wantError(t, s.HistoryMemory(base).AddSessionToMemory(t.Context(), get(t, s, "s")), storetest.ErrInjected)
	if base.events != nil {
		t.Errorf("the memory was given %v", base.events)
	}
	b.broken = false
	c.do("GET", path, "", 200)
	noError(t, s.HistoryMemory(base).AddSessionToMemory(t.Context(), get(t, s, "s")))
	equal(t, "events", base.events[:6], all)
}

func TestHistoryHandler(t *testing.T) {
	s := inMemory(t)
	createSummarised(t, s)
	for request, want := range map[string]int{
		"GET /apps/app": 6, "POST /apps/app": 2, "GET /run_live": 2, "GET /api/run_live": 2, "DELETE /x": 2,
	} {
		method, path, _ := strings.Cut(request, " ")
		h := adk.HistoryHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, err := s.Get(r.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
			noError(t, err)
			if n := got.Session.Events().Len(); n != want {
				t.Errorf("%s: %d events, want %d", request, n, want)
			}
			w.WriteHeader(http.StatusTeapot)
		}))
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		equal(t, "status", answer.Code, http.StatusTeapot)
	}
}

// recordingMemory is a memory service that records the sessions it receives.
type recordingMemory struct {
	memory.Service
	events []string
	err    error
}

func (k *recordingMemory) AddSessionToMemory(_ context.Context, sess session.Session) error {
	k.events = ids(sess)
	return k.err
}

// HistoryMemory passes the history to the memory service, even if the session shows only the visible log.
func TestHistoryMemory(t *testing.T) {
	s := inMemory(t)
	createSummarised(t, s)
	base := &recordingMemory{Service: memory.InMemoryService()}
	m := s.HistoryMemory(base)
	all := []string{"e0", "e1", "e2", "e3", "e4", "e5"}
	sess := get(t, s, "s")
	noError(t, m.AddSessionToMemory(t.Context(), sess))
	equal(t, "of a session that was got", base.events, all)
	noError(t, s.AppendEvent(t.Context(), sess, textEvent("e6", "user", "more")))
	noError(t, m.AddSessionToMemory(t.Context(), struct{ session.Session }{sess}))
	equal(t, "of one that was used", base.events, append(all, "e6"))
	base.err = errors.New("the memory is full")
	wantError(t, m.AddSessionToMemory(t.Context(), sess), base.err)

	base.events = nil
	wantError(t, m.AddSessionToMemory(t.Context(), nil), patch.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, m.AddSessionToMemory(ctx, sess), context.Canceled)
	noError(t, s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
	wantError(t, m.AddSessionToMemory(t.Context(), sess), store.ErrNotFound)
	if base.events != nil {
		t.Errorf("the memory was given %v", base.events)
	}

	real := s.HistoryMemory(memory.InMemoryService())
	createSummarised(t, s)
	noError(t, real.AddSessionToMemory(t.Context(), get(t, s, "s")))
	found, err := real.SearchMemory(t.Context(), &memory.SearchRequest{AppName: "app", UserID: "user", Query: "words"})
	noError(t, err)
	equal(t, "memories", len(found.Memories), 6)
	for _, e := range found.Memories {
		if genai.Role(e.Content.Role) == "user" && e.Author != "user" {
			t.Errorf("a memory of author %s has the role user", e.Author)
		}
	}
}

// brokenHiddenReads is a backend that cannot read hidden records while broken is set.
type brokenHiddenReads struct {
	*memstore.Backend
	broken bool
}

func (u *brokenHiddenReads) Read(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	if u.broken && seqs[0] < 6 { // the read is for a record that a summary hides
		return nil, storetest.ErrInjected
	}
	return u.Backend.Read(ctx, name, creation, seqs, maxBytes)
}

// readCounter counts the records that are read by their seqs.
type readCounter struct {
	*memstore.Backend
	records int
}

func (c *readCounter) Read(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	c.records += len(seqs)
	return c.Backend.Read(ctx, name, creation, seqs, maxBytes)
}

// The cost of a history page does not depend on the length of the session, the depth of its summaries, or the
// distance of the page from the end.
func TestHistoryPageReads(t *testing.T) {
	for _, size := range []int{100, 800} {
		b := &readCounter{Backend: new(memstore.Backend)}
		s := newService(t, mustOpen(t)(store.New(b, store.Options{})))
		sess := create(t, s, "s", nil)
		appendAll(t, s, sess, userMessages(size)...)
		for sess.Events().Len() > 12 {
			e, err := adk.NewEvent(textEvent(fmt.Sprint("s", sess.Events().Len()), "user", "the summary"))
			noError(t, err)
			noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSummarise(0, 10, e)}, store.PatchOptions{})))
		}
		appendAll(t, s, sess, timedEvent(size, fmt.Sprint("e", size), "user"))
		before := ""
		for left := size + 1; left > 0; left -= 30 {
			b.records = 0
			r, err := s.Get(adk.WithHistoryPage(t.Context(), before, 30), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
			noError(t, err)
			page := ids(r.Session)
			equal(t, "events", len(page), min(left, 30))
			equal(t, "last event", page[len(page)-1], fmt.Sprint("e", left-1))
			if b.records > 40 {
				t.Errorf("the page of 30 events before %q of %d reads %d records", before, size, b.records)
			}
			before = page[0]
		}
	}
}

// A request for a history page fails if the history does not contain the event in the parameter "before". After a
// rewind, a client must start again with the newest page.
func TestHistoryPageOfAnUnknownEvent(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		createSummarised(t, s)
		page := func(before string, limit int) ([]string, error) {
			r, err := s.Get(adk.WithHistoryPage(t.Context(), before, limit), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
			if err != nil {
				return nil, err
			}
			return ids(r.Session), nil
		}
		got, err := page("e4", 2)
		noError(t, err)
		equal(t, "page", got, []string{"e2", "e3"})
		got, err = page("e2", -1)
		noError(t, err)
		equal(t, "page without a limit", got, []string{"e0", "e1"})
		noError(t, errOf(s.Rewind(t.Context(), get(t, s, "s"), "inv-e4")))
		for _, before := range []string{"e4", "e5", "s1", "none", "\xff"} {
			err := errOf(page(before, 2))
			wantError(t, err, fold.ErrEventNotFound)
			if !strings.Contains(err.Error(), strconv.Quote(before)) {
				t.Errorf("the error is %v", err)
			}
		}
	})
}

func TestREST(t *testing.T) {
	onEachBackend(t, func(t *testing.T, s reopeningService) {
		c := restServer(t, s, &scriptedModel{}, tools(t)...)
		const sessions = "/apps/app/users/user/sessions"

		created := c.do("POST", sessions+"/s", `{"state":{"k":1,"app:a":"x"}}`, 200)
		equal(t, "id", created["id"], any("s"))
		equal(t, "state", created["state"], any(map[string]any{"k": 1.0, "app:a": "x"}))
		c.do("POST", sessions+"/s", "", 500)
		generated := c.do("POST", sessions, `{"events":[{"id":"e","author":"user","content":{"parts":[{"text":"hi"}],"role":"user"}}]}`, 200)
		equal(t, "events", len(generated["events"].([]any)), 1)

		events := c.list("POST", "/run", runRequest("turn 7", false), 200)
		equal(t, "events of a run", partKinds(events), "call call|response response|text")
		got := c.do("GET", sessions+"/s", "", 200)
		equal(t, "events", partKinds(got["events"].([]any)), "text|call call|response response|text")
		equal(t, "state", got["state"], any(map[string]any{"k": 1.0, "app:a": "x", "count": 1.0, "last": "k7"}))
		if got["lastUpdateTime"].(float64) == 0 {
			t.Error("the session has no update time")
		}

		stream := c.text("POST", "/run_sse", runRequest("turn 4", true), 200)
		if strings.Count(stream, "data: ") < 3 || !strings.Contains(stream, "an answer in words") || strings.Contains(stream, "error") {
			t.Errorf("the stream is %s", stream)
		}
		sess := get(t, s, "s")
		noError(t, errOf(s.reopened().ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 4)}, store.PatchOptions{})))
		got = c.do("GET", sessions+"/s", "", 200)
		equal(t, "events after a patch", partKinds(got["events"].([]any)), "text|text")

		equal(t, "sessions", len(c.list("GET", sessions, "", 200)), 2)
		c.text("DELETE", sessions+"/s", "", 200)
		equal(t, "sessions after a delete", len(c.list("GET", sessions, "", 200)), 1)
		c.text("GET", sessions+"/s", "", 500)
		c.text("POST", "/run", runRequest("turn 1", false), 404)
	})
}

func runRequest(words string, stream bool) string {
	text, err := json.Marshal(map[string]any{
		"appName": "app", "userId": "user", "sessionId": "s", "streaming": stream,
		"newMessage": genai.NewContentFromText(words, "user"),
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// partKinds returns the kinds of the parts in JSON events.
func partKinds(events []any) string {
	var out []string
	for _, e := range events {
		var kinds []string
		for _, p := range e.(map[string]any)["content"].(map[string]any)["parts"].([]any) {
			switch p := p.(map[string]any); {
			case p["functionCall"] != nil:
				kinds = append(kinds, "call")
			case p["functionResponse"] != nil:
				kinds = append(kinds, "response")
			default:
				kinds = append(kinds, "text")
			}
		}
		out = append(out, strings.Join(kinds, " "))
	}
	return strings.Join(out, "|")
}

type client struct {
	t   *testing.T
	url string
}

// restServer starts ADK's REST server. If the service is an adk.Service, GET requests return histories.
func restServer(t *testing.T, sessions session.Service, m model.LLM, tools ...tool.Tool) client {
	t.Helper()
	rest, err := adkrest.NewServer(adkrest.ServerConfig{
		SessionService: sessions, AgentLoader: agent.NewSingleLoader(llmAgent(t, m, tools...)), SSEWriteTimeout: time.Minute,
	})
	noError(t, err)
	handler := adk.HistoryHandler(rest)
	if own, ok := sessions.(*adk.Service); ok {
		handler = adk.HistoryHandler(own.RESTHandler(rest))
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return client{t, server.URL}
}

func (c client) text(method, path, body string, status int) string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader([]byte(body)))
	noError(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	noError(c.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	noError(c.t, err)
	if resp.StatusCode != status {
		c.t.Fatalf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, status, text)
	}
	return string(text)
}

func (c client) do(method, path, body string, status int) (out map[string]any) {
	c.t.Helper()
	text := c.text(method, path, body, status)
	if status == http.StatusOK {
		noError(c.t, json.Unmarshal([]byte(text), &out))
	}
	return out
}

func (c client) list(method, path, body string, status int) (out []any) {
	c.t.Helper()
	noError(c.t, json.Unmarshal([]byte(c.text(method, path, body, status)), &out))
	return out
}
