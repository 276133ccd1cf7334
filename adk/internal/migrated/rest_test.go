package migrated

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/server/adkrest"
	"google.golang.org/adk/v2/session"
	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/store/migrate"
)

// exports are what ADK's REST server answers for each session of an app.
func exports(t testing.TB, s session.Service, app string) (texts []string) {
	t.Helper()
	a, err := llmagent.New(llmagent.Config{Name: "clerk"})
	no(t, err)
	handler, err := adkrest.NewServer(adkrest.ServerConfig{SessionService: s, AgentLoader: agent.NewSingleLoader(a), SSEWriteTimeout: time.Minute})
	no(t, err)
	server := httptest.NewServer(handler)
	defer server.Close()
	list, err := s.List(t.Context(), &session.ListRequest{AppName: app})
	no(t, err)
	for _, s := range list.Sessions {
		r, err := http.Get(server.URL + "/apps/" + url.PathEscape(app) + "/users/" + url.PathEscape(s.UserID()) + "/sessions/" + s.ID())
		no(t, err)
		text, err := io.ReadAll(r.Body)
		no(t, err)
		no(t, r.Body.Close())
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", r.Status, text)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// What ADK's REST server gives of its own service, it gives of the store that this was
// migrated to.
func TestRESTServer(t *testing.T) {
	quickly(t, "30")
	rapid.Check(t, func(rt *rapid.T) {
		theirs, target := session.InMemoryService(), memory(t)
		(&drawer{t: rt, noTemp: true}).fill(theirs) // which ADK's service in memory keeps
		want := exports(t, theirs, "shop")
		from := func() migrate.Source { return migrate.NewREST(strings.NewReader(strings.Join(want, "\n")), "exports") }
		if len(want) == 0 {
			return
		}
		_, results := run(t, target, from(), migrate.Options{})
		for key, r := range results {
			if r.Status != migrate.Created {
				rt.Fatalf("%s: %s, %v", key, r.Status, r.Err)
			}
		}
		got := exports(t, asADK(t, target), "shop")
		if len(got) != len(want) {
			rt.Fatalf("%d sessions, want %d", len(got), len(want))
		}
		byKey := map[string]any{}
		for _, text := range got {
			v := parsed(t, text)
			byKey[v["userId"].(string)+"/"+v["id"].(string)] = v
		}
		for _, text := range want {
			v := parsed(t, text)
			if own := byKey[v["userId"].(string)+"/"+v["id"].(string)]; !reflect.DeepEqual(own, any(v)) {
				rt.Fatalf("got\n%v\nwant\n%v", own, v)
			}
		}
		report, _ := run(t, target, from(), migrate.Options{})
		if report.Added+report.Shared.Added > 0 || report.Sessions[migrate.Unchanged] != len(want) {
			rt.Fatalf("again: %+v", report)
		}
	})
}

// parsed is a session without its time.
func parsed(t testing.TB, text string) map[string]any {
	t.Helper()
	var v map[string]any
	no(t, json.Unmarshal([]byte(text), &v))
	delete(v, "lastUpdateTime")
	return v
}
