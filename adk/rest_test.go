package adk_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/server/adkrest"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
)

func shownIDs(sess map[string]any) string {
	var ids []string
	for _, e := range sess["events"].([]any) {
		ids = append(ids, e.(map[string]any)["id"].(string))
	}
	return strings.Join(ids, " ")
}

// The REST routes rewind sessions, fork sessions, and return pages of histories.
func TestRESTHandler(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		createSummarised(t, s)
		c := restServer(t, s, &scriptedModel{})
		const path = "/apps/app/users/user/sessions/s"
		for query, want := range map[string]string{"": "e0 e1 e2 e3 e4 e5", "?limit=2": "e4 e5", "?limit=4&before=e2": "e0 e1", "?limit=1&before=e1": "e0", "?limit=4&before=e0": "", "?before=e3": "e0 e1 e2"} {
			equal(t, query, shownIDs(c.do("GET", path+"/history"+query, "", 200)), want)
		}
		forked := c.do("POST", path+"/fork", `{"sessionId":"a branch","forkBeforeInvocationId":"inv-e2"}`, 200)
		equal(t, "fork", fmt.Sprint(forked["id"], " ", forked["userId"], ": ", shownIDs(forked)), "a branch user: e0 e1")
		c.do("POST", path+"/fork", `{"sessionId":"a branch"}`, 409)
		equal(t, "fork of all", shownIDs(c.do("POST", path+"/fork", "", 200)), strings.Join(ids(get(t, s, "s")), " "))
		rewound := c.do("POST", "/apps/app/users/user/sessions/a%20branch/rewind", `{"rewindBeforeInvocationId":"inv-e1"}`, 200)
		equal(t, "rewound", fmt.Sprint(rewound["id"], ": ", shownIDs(rewound)), "a branch: e0")
		equal(t, "rewound", ids(get(t, s, "a branch")), []string{"e0"})

		for _, r := range []struct {
			method, path, body string
			status             int
		}{
			{"GET", path + "/history?limit=x", "", 400},
			{"GET", path + "/history?limit=-1", "", 400},
			{"GET", path + "/history?before=none", "", 404},
			{"GET", path + "/history?limit=4&before=s2", "", 404}, // s2 is a summary, which the history does not contain
			{"GET", path + "?limit=4&before=none", "", 500},       // ADK's own route responds with 500 to every error
			{"GET", "/apps/app/users/user/sessions/none/history", "", 404},
			{"GET", "/apps/app/users/user/sessions/none/history?before=e1", "", 404},
			{"POST", path + "/rewind", "", 400},
			{"POST", path + "/rewind", "{}", 400},
			{"POST", path + "/rewind", `{"invocationId":"inv-e1"}`, 400},
			{"POST", path + "/rewind", `{"rewindBeforeInvocationId":7}`, 400},
			{"POST", path + "/rewind", `{"rewindBeforeInvocationId":"none"}`, 404},
			{"POST", "/apps/app/users/user/sessions/none/rewind", `{"rewindBeforeInvocationId":"inv-e1"}`, 404},
			{"POST", "/apps/app/users/user/sessions/none/fork", "{}", 404},
			{"POST", path + "/fork", `{"forkBeforeInvocationId":"none"}`, 404},
			{"POST", path + "/rewind", `{"rewindBeforeInvocationId":"inv-e1","sessionId":"t"}`, 400},
			{"POST", path + "/rewind", `{"rewindBeforeInvocationId":"inv-e1"} {}`, 400},
			{"POST", path + "/rewind", `{"rewindBeforeInvocationId":"inv-e1"}}`, 400},
			{"POST", path + "/rewind", `{"rewindBeforeInvocationId":"inv-e1"`, 400},
			{"POST", path + "/fork", `{"rewindBeforeInvocationId":"inv-e1"}`, 400}, // the field is unknown to the fork route, which would otherwise fork the whole session
			{"POST", path + "/fork", `{"sessionId":"a/b"}`, 400},
			{"POST", path + "/fork", `{"sessionId":".."}`, 400},
			{"POST", path + "/fork", `{"sessionId":"` + strings.Repeat("x", 1<<17) + `"}`, 413},
			{"GET", path + "/fork", "", 404},
			{"POST", path + "/history", "{}", 404},
			{"DELETE", path + "/rewind", "", 404},
			{"POST", "/apps/app/users//sessions/s/fork", "{}", 404},
		} {
			c.text(r.method, r.path, r.body, r.status)
		}
		equal(t, "sessions", len(c.list("GET", "/apps/app/users/user/sessions", "", 200)), 3)
	})
}

// The handler refuses a request that a browser sends to another site without permission. In a launcher, which
// serves the API under a path prefix, the response has the headers of ADK's own route.
func TestRESTHandlerInALauncher(t *testing.T) {
	s := inMemory(t)
	createSummarised(t, s)
	rest, err := adkrest.NewServer(adkrest.ServerConfig{SessionService: s, AgentLoader: agent.NewSingleLoader(llmAgent(t, counter{}))})
	noError(t, err)
	h := s.RESTHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "ui")
		http.StripPrefix("/api", rest).ServeHTTP(w, r)
	}))
	for kind, status := range map[string]int{"text/plain": 415, "": 415, "application/json; charset=utf-8": 200} {
		r := httptest.NewRequest("POST", "/api/apps/app/users/user/sessions/s/fork", strings.NewReader("{}"))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		equal(t, kind, w.Code, status)
		equal(t, "allows", w.Header().Get("Access-Control-Allow-Origin") == "ui", status == 200)
	}
}

func ExampleService_RESTHandler() {
	sessions, _ := chat()
	clerk, err := llmagent.New(llmagent.Config{Name: "clerk", Model: counter{}})
	check(err)
	api, err := adkrest.NewServer(adkrest.ServerConfig{SessionService: sessions, AgentLoader: agent.NewSingleLoader(clerk)})
	check(err)
	server := httptest.NewServer(sessions.RESTHandler(api))
	defer server.Close()

	answer, err := http.Post(server.URL+"/apps/app/users/user/sessions/chat/rewind", "application/json", strings.NewReader(`{"rewindBeforeInvocationId":"inv1"}`))
	check(err)
	answer.Body.Close()
	got, err := sessions.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "chat"})
	check(err)
	fmt.Println(answer.Status, got.Session.Events().Len())
	// Output: 200 OK 2
}
