package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/adk/v2/cmd/launcher/web"
	"google.golang.org/adk/v2/cmd/launcher/web/api"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/store"
)

// A turn that runs in the launcher's server appears on the inspector's page of the session.
func TestInspectorShowsAgentRun(t *testing.T) {
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sessions, err := adk.NewService(db, adk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close(t.Context())
	config, err := configure(sessions)
	if err != nil {
		t.Fatal(err)
	}
	rest, inspected := historyAPI{api.NewLauncher(), sessions}, inspectorPages{db, "secret"}
	if left, err := web.NewLauncher(rest, inspected).Parse([]string{"api", "inspector"}); err != nil || len(left) > 0 {
		t.Fatalf("the launcher does not take %q: %v", left, err)
	}
	router := web.BuildBaseRouter()
	for _, l := range []web.Sublauncher{rest, inspected} {
		if err := l.SetupSubrouters(router, config); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(router)
	defer server.Close()
	request := func(method, path, token, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		return got.Status + "\n" + string(text)
	}
	request("POST", "/api/apps/clerk/users/ann/sessions/1", "", `{}`)
	answer := request("POST", "/api/run", "", `{"appName":"clerk","userId":"ann","sessionId":"1","newMessage":{"role":"user","parts":[{"text":"Is there a lamp?"}]}}`)
	if !strings.Contains(answer, "I see messages: 1.") {
		t.Fatalf("the agent answers %s", answer)
	}
	if history := request("GET", "/api/apps/clerk/users/ann/sessions/1/history?limit=1", "", ""); !strings.HasPrefix(history, "200 OK") || strings.Contains(history, "lamp") {
		t.Errorf("the last event is %s", history)
	}
	if fork := request("POST", "/api/apps/clerk/users/ann/sessions/1/fork", "", `{"sessionId":"2"}`); !strings.HasPrefix(fork, "200 OK") || !strings.Contains(fork, "lamp") {
		t.Errorf("the fork is %s", fork)
	}
	page := request("GET", "/inspector/session?key=clerk/ann/1", "secret", "")
	for _, want := range []string{"200 OK", "clerk/ann/1", "Is there a lamp?", "I see messages: 1.", "read-only"} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q on the page:\n%s", want, page)
		}
	}
	if style := request("GET", "/inspector/assets/style.css", "secret", ""); !strings.HasPrefix(style, "200 OK") {
		t.Errorf("the style: %.100s", style)
	}
	if page := request("GET", "/inspector/session?key=clerk/ann/1", "", ""); !strings.HasPrefix(page, "401") {
		t.Errorf("without the token: %s", page)
	}
}
