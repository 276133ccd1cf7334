package inspector_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// A session about a lamp, in which patches hid things, and its key.
var shopKey = store.Key{App: "shop", User: "ada", Session: "1/2"}

const shopLog = `{"id":"e1","invocationId":"i1","author":"user","timestamp":"2025-01-01T00:00:00Z","content":{"role":"user","parts":[{"text":"Where is my brass lamp? The order is ORDER-4711."}]}}
{"id":"e2","invocationId":"i1","author":"clerk","timestamp":"2025-01-01T00:00:01Z","content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"track","args":{"order":"ORDER-4711"}}}]},"actions":{"stateDelta":{"seen":["ORDER-4711"]}}}
{"id":"e3","invocationId":"i1","author":"clerk","timestamp":"2025-01-01T00:00:02Z","content":{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"track","response":{"tracking":"TR-88-1234567"}}}]}}
{"id":"e4","invocationId":"i1","author":"clerk","timestamp":"2025-01-01T00:00:03Z","content":{"role":"model","parts":[{"text":"It is on its way: TR-88-1234567."}]}}
{"id":"e5","invocationId":"i2","author":"user","timestamp":"2025-01-02T00:00:00Z","content":{"role":"user","parts":[{"text":"And the green teapot?"}]}}
{"id":"e6","invocationId":"i2","author":"clerk","timestamp":"2025-01-02T00:00:01Z","content":{"role":"model","parts":[{"text":"The teapot is sold out."}]}}
{"id":"e7","invocationId":"i3","author":"user","timestamp":"2025-01-03T00:00:00Z","content":{"role":"user","parts":[{"text":"Then I take a second lamp, a lamp of brass."}]}}
{"id":"p8","author":"ops","timestamp":"2025-01-03T00:00:01Z","patchType":"splice","start":4,"count":2}
{"id":"p9","author":"ops","timestamp":"2025-01-03T00:00:02Z","patchType":"summarise","start":0,"count":4,"summaryEvent":{"id":"s9","author":"user","content":{"role":"user","parts":[{"text":"Ada asked for her lamp, ORDER-4712."}]}}}
`

func openShop(t *testing.T) *store.Store {
	t.Helper()
	s := teststore.Memory(t, store.Options{Now: func() time.Time { return time.Date(2025, 1, 4, 0, 0, 0, 0, time.UTC) }})
	importLog(t, s, shopKey, shopLog)
	return s
}

func importLog(t *testing.T, s *store.Store, key store.Key, log string) {
	t.Helper()
	testlog.Must(s.Import(t.Context(), key, strings.NewReader(log), store.ImportOptions{}))(t)
}

func saySomething(t *testing.T, s *store.Store, key store.Key, text string) {
	t.Helper()
	e := testlog.Must(patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", text)}))(t)
	testlog.Must(s.AppendEvents(context.Background(), key, store.AppendOptions{}, e))(t)
}

func newInspector(t *testing.T, s *store.Store, opts inspector.Options) *inspector.Inspector {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return testlog.Must(inspector.New(s, opts))(t)
}

// getPage gets a page by its name and parameters, names and values in turn.
func getPage(t *testing.T, i http.Handler, name string, pairs ...string) (status int, body string) {
	t.Helper()
	query := url.Values{}
	for n := 0; n < len(pairs); n += 2 {
		query.Set(pairs[n], pairs[n+1])
	}
	r := httptest.NewRequest("GET", "http://localhost/"+name+"?"+query.Encode(), nil)
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	text := testlog.Must(io.ReadAll(w.Result().Body))(t)
	return w.Code, string(text)
}
