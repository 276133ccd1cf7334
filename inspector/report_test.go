package inspector_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

func reportOf(t *testing.T, s *store.Store, key store.Key, opts inspector.ReportOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := inspector.Report(t.Context(), &out, s, key, opts); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// shownText is the text of a page, without its tags, in one line.
func shownText(page string) string {
	text := regexp.MustCompile(`(?s)<style>.*?</style>|<.*?>`).ReplaceAllString(page, " ")
	return strings.Join(strings.Fields(unescape(text)), " ")
}

func unescape(text string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;", "'", "&#43;", "+", "&amp;", "&").Replace(text)
}

func TestReport(t *testing.T) {
	s := openShop(t)
	page := reportOf(t, s, shopKey, inspector.ReportOptions{})
	text := shownText(page)
	for _, want := range []string{
		"A session as it stood after record 9, of 2025-01-03T00:00:02Z.",
		"1 user user 2025-01-01T00:00:00Z 15 tokens Where is my brass lamp? The order is ORDER-4711. hidden by patch 9 Contents Where is my brass lamp?",
		`2 call clerk 2025-01-01T00:00:01Z 10 tokens call track {"order":"ORDER-4711"} hidden by patch 9 Contents function call track { "order": "ORDER-4711" } State that it sets seen [ "ORDER-4711" ]`,
		"7 user user 2025-01-03T00:00:00Z 12 tokens Then I take a second lamp, a lamp of brass. visible, index 1",
		"8 splice ops 2025-01-03T00:00:01Z start 4, count 2, state drop hid 2 visible events: index 4 to 5",
		"9 summarise ops 2025-01-03T00:00:02Z start 0, count 4, state keep hid 4 visible events: index 0 to 3 added at index 0, id s9: summary: Ada asked for her lamp, ORDER-4712. Contents Ada asked for her lamp, ORDER-4712.",
		"summary: Ada asked for her lamp, ORDER-4712. record 9 index 0, level 1, id s9: stands for 4 events",
		`seen [ "ORDER-4711" ]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}

	// Figures and losses are those of the command.
	stats, err := present.Measure(t.Context(), s, shopKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range stats.Rows()[1:] { // the first is the heading
		name := strings.TrimSpace(r.Name)
		if want := strings.ToUpper(name[:1]) + name[1:] + " " + r.Text; !strings.Contains(text, want) {
			t.Errorf("there is no figure %q", want)
		}
	}
	_, losses, err := present.LossesOf(t.Context(), s, shopKey, "")
	if err != nil || len(losses) != 1 || len(losses[0].Gone) == 0 || len(losses[0].Invented) == 0 {
		t.Fatal(losses, err)
	}
	for _, line := range losses[0].Lines() {
		if !strings.Contains(text, strings.TrimSpace(line)) {
			t.Errorf("there is no loss %q", line)
		}
	}
	holdsTogether(t, page)
}

// holdsTogether checks that a file needs no other one, and that its links lead somewhere in it.
func holdsTogether(t *testing.T, page string) {
	t.Helper()
	if !strings.Contains(page, `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">`) {
		t.Error("there is no policy")
	}
	if m := regexp.MustCompile(`(?i)<(script|link|iframe|object|embed|base|form|img)\b|\son\w+=|javascript:`).FindString(markup(page)); m != "" {
		t.Errorf("there is a %s in the file", m)
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("the id %s is there twice", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(` href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(m[1], "#") || !ids[m[1][1:]] {
			t.Errorf("the link %s leads nowhere in the file", m[1])
		}
	}
}

// markup is a page's tags alone.
func markup(page string) string {
	return strings.Join(regexp.MustCompile(`<[^>]*>`).FindAllString(page, -1), "")
}

// A report of a long session has what is newest, and says what it left out.
func TestReportBounded(t *testing.T) {
	s := openShop(t)
	page := reportOf(t, s, shopKey, inspector.ReportOptions{MaxEvents: 2})
	text := shownText(page)
	for _, want := range []string{
		"Raw log 2 records Left out of this file: the records before 8.", "record 7 Contents Then I take a second lamp",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	holdsTogether(t, page)
	one := reportOf(t, s, shopKey, inspector.ReportOptions{MaxEvents: 1})
	if text := shownText(one); !strings.Contains(text, "What the model sees 2 events Left out of this file: the first 1 event.") {
		t.Errorf("one visible event: %s", text)
	}
	whole := store.Key{App: "shop", User: "ada", Session: "whole"}
	importLog(t, s, whole, strings.Join(strings.SplitAfter(shopLog, "\n")[:7], ""))
	for n := range 9 {
		for _, key := range []store.Key{shopKey, whole} {
			holdsTogether(t, reportOf(t, s, key, inspector.ReportOptions{MaxEvents: n + 1}))
		}
	}
	for _, opts := range []inspector.ReportOptions{{MaxEvents: -1}} {
		if err := inspector.Report(t.Context(), io.Discard, s, shopKey, opts); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	var out bytes.Buffer
	if err := inspector.Report(t.Context(), &out, s, store.Key{App: "a", User: "u", Session: "none"}, inspector.ReportOptions{}); !errors.Is(err, store.ErrNotFound) || out.Len() > 0 {
		t.Errorf("of none: %v, and %d bytes", err, out.Len())
	}
	importLog(t, s, store.Key{App: "a", User: "u", Session: "empty"}, "")
	holdsTogether(t, reportOf(t, s, store.Key{App: "a", User: "u", Session: "empty"}, inspector.ReportOptions{}))
}

// A long text does not make a large file, and nothing that a session says is more than text.
func TestReportHostile(t *testing.T) {
	s := openShop(t)
	key := store.Key{App: "<b>", User: "\u202e", Session: `"><script>alert(0)</script>`}
	importLog(t, s, key, `{"id":"</style><script>1","author":"<img src=x>","invocationId":"i","content":{"role":"user","parts":[{"text":"</pre><script>alert(1)</script>\u001b[31m\u202e\r\nx\u0000 <svg onload=alert(2)>"},{"inlineData":{"mimeType":"<script>","data":"AAAA"}}]},"actions":{"stateDelta":{"<i>":"</code><script>"}}}
{"id":"p","author":"<img src=x>","patchType":"summarise","start":0,"count":1,"group":"<b>","summaryEvent":{"id":"<s>","author":"user","content":{"role":"user","parts":[{"text":"<script>3</script> at /x/<script>/y7"}]}}}
`)
	saySomething(t, s, key, strings.Repeat("10 MB", 2_000_000))
	page := reportOf(t, s, key, inspector.ReportOptions{})
	if strings.ContainsAny(page, "\x00\x1b\r\u202e") || len(page) > 120_000 {
		t.Errorf("%d bytes of\n%.9000s", len(page), page)
	}
	if text := shownText(page); !strings.Contains(text, `</pre><script>alert(1)</script>\u001b[31m\u202e x\u0000 <svg onload=alert(2)>`) {
		t.Errorf("the text is not in\n%.5000s", text)
	}
	holdsTogether(t, page)
}

func TestExport(t *testing.T) {
	s := openShop(t)
	i := newInspector(t, s, inspector.Options{Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool { return key == shopKey }})
	get := func(query string) *http.Response {
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/export?"+query, nil))
		return w.Result()
	}
	var want bytes.Buffer
	if err := s.Export(t.Context(), shopKey, &want, store.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	for form, c := range map[string]struct{ kind, name, body string }{
		"":            {"application/jsonl; charset=utf-8", "session-shop-ada-1-2.jsonl", want.String()},
		"&form=jsonl": {"application/jsonl; charset=utf-8", "session-shop-ada-1-2.jsonl", want.String()},
		"&form=html":  {"text/html; charset=utf-8", "session-shop-ada-1-2.html", reportOf(t, s, shopKey, inspector.ReportOptions{})},
	} {
		got := get("key=" + url.QueryEscape(shopKey.String()) + form)
		body, err := io.ReadAll(got.Body)
		if err != nil || got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != c.kind ||
			got.Header.Get("Content-Disposition") != "attachment; filename="+c.name || string(body) != c.body {
			t.Errorf("%q: %d, %v, %v:\n%s", form, got.StatusCode, got.Header, err, body)
		}
	}
	for query, want := range map[string]int{
		"key=a/u/s&form=jsonl":        http.StatusNotFound, // it may not be read
		"key=shop/ada/1%252F2&form=x": http.StatusBadRequest,
		"form=html":                   http.StatusBadRequest,
	} {
		if got := get(query); got.StatusCode != want || got.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d, want %d, %v", query, got.StatusCode, want, got.Header)
		}
	}
}

// Names of files have nothing in them that a system takes for more than a name.
func TestExportNames(t *testing.T) {
	s := openShop(t)
	for key, want := range map[store.Key]string{
		{App: "..", User: "/etc/passwd", Session: "a\"b\r\nX: y;ü"}: "session-etc-passwd-a-b--X--y.jsonl",
		{App: "....", User: "....", Session: "...."}:                "session-.jsonl",
		{App: strings.Repeat("a", 200), User: "u", Session: "s"}:    "session-" + strings.Repeat("a", 100) + ".jsonl",
	} {
		importLog(t, s, key, "")
		w := httptest.NewRecorder()
		newInspector(t, s, inspector.Options{}).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/export?key="+url.QueryEscape(key.String()), nil))
		if got := w.Header().Get("Content-Disposition"); got != "attachment; filename="+want {
			t.Errorf("%v: %d, %s, want %s", key, w.Code, got, want)
		}
	}
}

// breaking is a backend of which so many more pages can be read.
type breaking struct {
	backend.Backend
	reads atomic.Int64
}

func (b *breaking) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	if b.reads.Add(-1) < 0 {
		return nil, errors.New("the disk is gone")
	}
	return b.Backend.Read(ctx, session, creation, seqs, maxBytes)
}

// A file that was cut short does not look like a whole one.
func TestExportCutShort(t *testing.T) {
	b := &breaking{Backend: new(memory.Backend)}
	var log bytes.Buffer
	s, err := store.New(b, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := store.Key{App: "a", User: "u", Session: "s"}
	importLog(t, s, key, "")
	for n := range 600 {
		saySomething(t, s, key, fmt.Sprint(n)+strings.Repeat(" long", 1_000))
	}
	server := httptest.NewServer(newInspector(t, s, inspector.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer server.Close()
	if got, err := http.Get(server.URL + "/export?key=a/u/s"); err != nil || got.StatusCode != http.StatusInternalServerError || got.Header.Get("Content-Disposition") != "" {
		t.Errorf("nothing can be read: %v, %v", got, err)
	}
	b.reads.Store(2) // the third page cannot be read
	got, err := http.Get(server.URL + "/export?key=a/u/s")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err == nil || got.StatusCode != http.StatusOK || len(text) == 0 || !strings.Contains(log.String(), "cut short") {
		t.Errorf("%d, %d bytes, %v, log %s", got.StatusCode, len(text), err, &log)
	}
}

// Images are in the file itself, if they are no larger than an image may be; what says that it is one, and
// is not, is not shown as one.
func TestReportHasImages(t *testing.T) {
	s := openShop(t)
	png := base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 100)...))
	large := base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 1<<20)...))
	e, err := patch.ParseEvent([]byte(`{"id":"images","author":"user","content":{"role":"user","parts":[
		{"inlineData":{"mimeType":"image/png","data":"` + png + `"}},{"inlineData":{"mimeType":"image/png","data":"` + large + `"}},
		{"inlineData":{"mimeType":"image/svg+xml","data":"` + png + `"}},{"inlineData":{"mimeType":"image/png","data":"PHNjcmlwdD4="}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendEvents(t.Context(), shopKey, store.AppendOptions{}, e); err != nil {
		t.Fatal(err)
	}
	page := reportOf(t, s, shopKey, inspector.ReportOptions{})
	if n := strings.Count(page, "<img "); n != 1 || !strings.Contains(page, `src="data:image/png;base64,`+html.EscapeString(png)) {
		t.Errorf("%d images are shown", n)
	}
}
