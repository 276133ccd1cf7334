package browser

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/inspector/browser/internal/page"
)

// A report is a page of its own: it needs no server, no script, and nothing beside it.
func TestReport(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{})
	f.session(ada, 120)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/report.html" {
			http.NotFound(w, r)
			return
		}
		if err := inspector.Report(r.Context(), w, f.Store, ada, inspector.ReportOptions{}); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	for _, opts := range []page.Options{{}, {Dark: true, NoScript: true}, page.Phone()} {
		p := page.Open(t, server.URL, opts)
		p.Go("report.html")
		p.Overflow()
		p.Axe()
		v := f.view(ada)
		if n := p.Count("#visible .row"); n != v.Len() {
			t.Errorf("%d of %d visible events", n, v.Len())
		}
		if n := p.Count("#raw .row"); n != int(v.Seq()) {
			t.Errorf("%d of %d records", n, v.Seq())
		}
	}
}
