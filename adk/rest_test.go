package adk_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/server/adkrest"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/patch"
)

// ADK's own REST server serves sessions.
func TestREST(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		handler, err := adkrest.NewServer(adkrest.ServerConfig{
			SessionService: s, AgentLoader: agent.NewSingleLoader(llmAgent(t, &scriptedModel{}, tools(t)...)), SSEWriteTimeout: time.Minute,
		})
		no(t, err)
		server := httptest.NewServer(handler)
		defer server.Close()
		c := client{t, server.URL}
		const sessions = "/apps/app/users/user/sessions"

		created := c.do("POST", sessions+"/s", `{"state":{"k":1,"app:a":"x"}}`, 200)
		equal(t, "id", created["id"], any("s"))
		equal(t, "state", created["state"], any(map[string]any{"k": 1.0, "app:a": "x"}))
		c.do("POST", sessions+"/s", "", 500)
		generated := c.do("POST", sessions, `{"events":[{"id":"e","author":"user","content":{"parts":[{"text":"hi"}],"role":"user"}}]}`, 200)
		equal(t, "events", len(generated["events"].([]any)), 1)

		events := c.list("POST", "/run", run("turn 7", false), 200)
		equal(t, "events of a run", kinds(events), "call call|response response|text")
		got := c.do("GET", sessions+"/s", "", 200)
		equal(t, "events", kinds(got["events"].([]any)), "text|call call|response response|text")
		equal(t, "state", got["state"], any(map[string]any{"k": 1.0, "app:a": "x", "count": 1.0, "last": "k7"}))
		if got["lastUpdateTime"].(float64) == 0 {
			t.Error("the session has no time")
		}

		stream := c.text("POST", "/run_sse", run("turn 4", true), 200)
		if strings.Count(stream, "data: ") < 3 || !strings.Contains(stream, "an answer in words") || strings.Contains(stream, "error") {
			t.Errorf("the stream is %s", stream)
		}
		sess := get(t, s, "s")
		no(t, errOf(s.now().ApplyPatch(t.Context(), sess, patch.NewSplice(0, 4))))
		got = c.do("GET", sessions+"/s", "", 200)
		equal(t, "events after a patch", kinds(got["events"].([]any)), "text|text")

		equal(t, "sessions", len(c.list("GET", sessions, "", 200)), 2)
		c.text("DELETE", sessions+"/s", "", 200)
		equal(t, "sessions after a delete", len(c.list("GET", sessions, "", 200)), 1)
		c.text("GET", sessions+"/s", "", 500)
		c.text("POST", "/run", run("turn 1", false), 404)
	})
}

func run(words string, stream bool) string {
	text, err := json.Marshal(map[string]any{
		"appName": "app", "userId": "user", "sessionId": "s", "streaming": stream,
		"newMessage": genai.NewContentFromText(words, "user"),
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// kinds says what events as JSON hold.
func kinds(events []any) string {
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

func (c client) text(method, path, body string, status int) string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader([]byte(body)))
	no(c.t, err)
	resp, err := http.DefaultClient.Do(req)
	no(c.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	no(c.t, err)
	if resp.StatusCode != status {
		c.t.Fatalf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, status, text)
	}
	return string(text)
}

func (c client) do(method, path, body string, status int) (out map[string]any) {
	c.t.Helper()
	text := c.text(method, path, body, status)
	if status == http.StatusOK {
		no(c.t, json.Unmarshal([]byte(text), &out))
	}
	return out
}

func (c client) list(method, path, body string, status int) (out []any) {
	c.t.Helper()
	no(c.t, json.Unmarshal([]byte(c.text(method, path, body, status)), &out))
	return out
}
