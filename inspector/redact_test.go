package inspector_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// What can be downloaded is redacted, its name too; and what a summarizer is given.
func TestRedactedDownloads(t *testing.T) {
	by := testlog.Must(redact.New(redact.Options{}))(t)
	asked := ""
	a := newActing(t, inspector.Options{Write: true, Redact: by, Compaction: compaction.Config{
		Enabled: true, CompactionInterval: 5, Summarizer: compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
			asked += r.Prompt
			return compaction.Response{}, nil
		}),
	}})
	a.append(`{"invocationId":"i4","author":"user","content":{"role":"user","parts":[{"text":"write to bob@example.com"}]}}`)
	a.fill(10)
	a.must(200, a.form(a.must(200, a.fields("compact")), "Do it"))
	if !strings.Contains(asked, by.Text("bob@example.com")) || strings.Contains(asked, "@example") {
		t.Errorf("the summarizer was asked %.300q", asked)
	}
	key := store.Key{App: "shop", User: "ada@example.com", Session: "1"}
	testlog.Must(a.store.Fork(t.Context(), a.key, key, store.ForkOptions{}))(t)
	for _, form := range []string{"jsonl", "visible"} {
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/export?form="+form+"&key="+url.QueryEscape(key.String()), nil))
		body, name := w.Body.String(), w.Header().Get("Content-Disposition")
		if w.Code != http.StatusOK || strings.Contains(body, "@example") || !strings.Contains(body, by.Text("bob@example.com")) || strings.Contains(name, "ada") {
			t.Errorf("%s: %d, named %s: %.300s", form, w.Code, name, body)
		}
	}
}
