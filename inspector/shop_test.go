package inspector_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/command"
	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// shopKey is the key of a session about a lamp. Some of its events are hidden.
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

func appendText(t *testing.T, s *store.Store, key store.Key, text string) {
	t.Helper()
	e := testlog.Must(patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", text)}))(t)
	testlog.Must(s.AppendEvents(context.Background(), key, []*patch.Event{e}, store.AppendOptions{}))(t)
}

func newInspector(t *testing.T, s *store.Store, opts inspector.Options) *inspector.Inspector {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return testlog.Must(inspector.New(s, opts))(t)
}

// getPage requests a page. The parameters are given as alternating names and values.
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

// hitsIn returns the hits on a page, each as a line of text. Marked words are in brackets.
func hitsIn(page string) []string {
	var hits []string
	for _, m := range regexp.MustCompile(`(?s)<li class="hit.*?</li>`).FindAllString(page, -1) {
		m = strings.NewReplacer("<mark>", "[", "</mark>", "]").Replace(m)
		text := regexp.MustCompile(`(?s)<.*?>`).ReplaceAllString(m, "")
		hits = append(hits, html.UnescapeString(strings.Join(strings.Fields(text), " ")))
	}
	return hits
}

func TestSearchPage(t *testing.T) {
	s := openShop(t)
	i := newInspector(t, s, inspector.Options{})
	key := shopKey.String()
	for name, c := range map[string]struct {
		params []string
		found  string
		hits   []string // beginnings of the hits
	}{
		"words":          {[]string{"q", "teapot"}, "5 events found", []string{"record 5, hidden by record 8, user, 2 Jan 2025 00:00 And the green [teapot]?", "record 6, hidden by record 8, clerk, 2 Jan 2025 00:00 The [teapot] is sold out.", "record 4", "record 7, visible, user, 3 Jan 2025 00:00 Then I take a second lamp, a lamp of brass.", "record 3"}},
		"what is hidden": {[]string{"q", "ORDER-4711", "hidden", "1"}, "", []string{"record 2, hidden by record 9, clerk"}},
		"an author":      {[]string{"q", "TR-88-1234567", "author", "clerk"}, "", []string{"record 3, hidden by record 9, clerk"}},
		"a tool":         {[]string{"q", "ORDER-4711", "tool", "track"}, "", []string{"record 2, hidden by"}},
		"summaries":      {[]string{"q", "ORDER-4712", "summaries", "1"}, "", []string{"record 9, visible, user (summary), "}},
		"nothing":        {[]string{"q", "zeppelin"}, "0 events found", nil},
	} {
		status, page := getPage(t, i, "search", append([]string{"key", key}, c.params...)...)
		hits := hitsIn(page)
		if status != http.StatusOK || !strings.Contains(page, c.found) || len(hits) < len(c.hits) || c.found != "" && len(hits) != len(c.hits) {
			t.Errorf("%s: status %d, found %q, want %q:\n%s", name, status, hits, c.hits, page)
			continue
		}
		for n, want := range c.hits {
			if got := hits[n]; !strings.HasPrefix(got, want) {
				t.Errorf("%s: hit %d is %q, want %q", name, n, got, want)
			}
		}
	}

	_, page := getPage(t, i, "search", "key", key, "q", "lamp", "author", "user")
	for _, want := range []string{`href="record?id=e7&amp;key=shop%2Fada%2F1%252F2&amp;seq=7"`, `name="author" value="user"`, `<details open><summary>Filters`} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s in\n%s", want, page)
		}
	}
	if _, page := getPage(t, i, "search", "key", key, "q", "teapot"); !strings.Contains(page, `href="record?key=shop%2Fada%2F1%252F2&amp;seq=8"`) || strings.Contains(page, `<details open><summary>Filters`) {
		t.Errorf("there is no link to the patch, or the form is open:\n%s", page)
	}
}

// The page of a refused search shows the reason and the query as typed.
func TestSearchProblems(t *testing.T) {
	i := newInspector(t, openShop(t), inspector.Options{})
	key := shopKey.String()
	for _, c := range []struct {
		status int
		want   string
		params []string
	}{
		{400, "query: it has no word to search for", []string{"q", " ", "author", "clerk"}},
		{400, "query: it has no word to search for", []string{"hidden", "1"}},
		{400, "a field has more than", []string{"q", "lamp", "author", strings.Repeat("x", 9000)}},
	} {
		status, page := getPage(t, i, "search", append([]string{"key", key}, c.params...)...)
		page = strings.NewReplacer("&#34;", `"`, `\"`, `"`).Replace(page)
		want := strings.NewReplacer("“", `"`, "”", `"`).Replace(c.want)
		if status != c.status || !strings.Contains(page, want) || !strings.Contains(page, `role="alert"`) || !strings.Contains(page, `name="q"`) || len(page) > 60_000 {
			t.Errorf("%.80v: status %d, want %d and %q:\n%.3000s", c.params, status, c.status, want, page)
		}
	}
	if status, page := getPage(t, i, "search", "key", key); status != http.StatusOK || strings.Contains(page, "role=\"alert\"") {
		t.Errorf("before anything is typed: status %d:\n%s", status, page)
	}
	if status, _ := getPage(t, i, "search", "key", "shop/ada/none", "q", "lamp"); status != http.StatusNotFound {
		t.Errorf("of a session that is not there: status %d", status)
	}
}

// Unreadable sessions affect neither hits nor ranking nor messages.
func TestSearchAuthorized(t *testing.T) {
	other := store.Key{App: "shop", User: "ada", Session: "other"}
	secret := store.Key{App: "shop", User: "ada", Session: "secret"}
	page := func(withSecret bool, asked string) string {
		s := openShop(t)
		importLog(t, s, other, "")
		appendText(t, s, other, "One more lamp stands in the kitchen.")
		if withSecret {
			importLog(t, s, secret, "")
			for range 20 {
				appendText(t, s, secret, "The lamp hides the lamp, of brass.")
			}
		}
		i := newInspector(t, s, inspector.Options{Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool { return key != secret }})
		status, page := getPage(t, i, "search", "key", asked, "q", "brass lamp", "all", "1")
		if status != http.StatusOK && asked != secret.String() {
			t.Errorf("status %d:\n%s", status, page)
		}
		return page
	}
	with, without := page(true, shopKey.String()), page(false, shopKey.String())
	if !slices.Equal(hitsIn(with), hitsIn(without)) || strings.Contains(with, "damaged") {
		t.Errorf("a session that may not be read shows:\n%q\nnot\n%q", hitsIn(with), hitsIn(without))
	}
	hits := strings.Join(hitsIn(with), "\n")
	if !strings.Contains(hits, "shop/ada/other, record 1, visible, user") || !strings.Contains(hits, "record 7, visible, user") {
		t.Errorf("found are\n%s", hits)
	}
	if hidden := page(true, secret.String()); !strings.Contains(hidden, "not found") || strings.Contains(hidden, "hides") {
		t.Errorf("it is asked for itself:\n%s", hidden)
	}
}

// A session that is created after a search began needs read access too.
func TestSearchAuthorizedLate(t *testing.T) {
	s := openShop(t)
	late := store.Key{App: "shop", User: "ada", Session: "late"}
	asked := 0
	i := newInspector(t, s, inspector.Options{Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool {
		if asked++; asked == 2 { // the first call is for the page's session, later calls are for listed sessions
			importLog(t, s, late, "")
			appendText(t, s, late, "lamp")
		}
		return key != late
	}})
	_, page := getPage(t, i, "search", "key", shopKey.String(), "q", "lamp", "all", "1")
	if len(hitsIn(page)) == 0 || strings.Contains(page, "ada/late") {
		t.Errorf("found are %q", hitsIn(page))
	}
}

// A search without a session covers all readable sessions of all users.
func TestSearchAllSessions(t *testing.T) {
	s := openShop(t)
	other, secret := store.Key{App: "desk", User: "bob", Session: "1"}, store.Key{App: "desk", User: "eve", Session: "2"}
	for _, key := range []store.Key{other, secret} {
		importLog(t, s, key, "")
		appendText(t, s, key, "The teapot is here.")
	}
	i := newInspector(t, s, inspector.Options{Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool { return key != secret }})
	_, page := getPage(t, i, "search", "q", "teapot")
	hits := strings.Join(hitsIn(page), "\n")
	if !strings.Contains(hits, "desk/bob/1, record 1,") || !strings.Contains(hits, "shop/ada/1%2F2, record 5") || strings.Contains(page, "desk/eve") {
		t.Errorf("found are %s", hits)
	}
}

func TestSearchHostile(t *testing.T) {
	testlog.SkipUnderRace(t)
	s := openShop(t)
	appendText(t, s, shopKey, "castle <script>alert(1)</script>\u202e javascript:x \x1b[31m "+strings.Repeat("castle ", 1_000_000))
	_, page := getPage(t, newInspector(t, s, inspector.Options{}), "search", "key", shopKey.String(), "q", "castle <img src=x onerror=alert(2)>")
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") || strings.ContainsAny(page, "\u202e\x1b") || len(page) > 60_000 {
		t.Errorf("%d bytes:\n%.5000s", len(page), page)
	}
	if hits := hitsIn(page); len(hits) == 0 || !strings.Contains(hits[0], `[castle] <script>[alert](1)</script>\u202e javascript:[x] \u001b[31m`) {
		t.Errorf("found are %q", hits)
	}
}

func TestExport(t *testing.T) {
	s := openShop(t)
	i := newInspector(t, s, inspector.Options{Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool { return key == shopKey }})
	var want, visible bytes.Buffer
	testlog.NoError(t, errors.Join(s.Export(t.Context(), shopKey, &want, store.ExportOptions{}), s.Export(t.Context(), shopKey, &visible, store.ExportOptions{Visible: true})))
	for form, want := range map[string]string{
		"":              want.String(),
		"&form=jsonl":   want.String(),
		"&form=visible": visible.String(),
	} {
		got := ask(i, "GET", "/export?key="+url.QueryEscape(shopKey.String())+form)
		body, err := io.ReadAll(got.Body)
		if err != nil || got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "application/jsonl; charset=utf-8" ||
			got.Header.Get("Content-Disposition") != "attachment; filename=session-shop-ada-1-2.jsonl" || string(body) != want {
			t.Errorf("%q: %d, %v, %v:\n%s", form, got.StatusCode, got.Header, err, body)
		}
	}
	for query, want := range map[string]int{
		"key=a/u/s&form=jsonl":        http.StatusNotFound, // not readable
		"key=shop/ada/1%252F2&form=x": http.StatusBadRequest,
		"form=visible":                http.StatusBadRequest,
	} {
		if got := ask(i, "GET", "/export?"+query); got.StatusCode != want || got.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d, want %d, %v", query, got.StatusCode, want, got.Header)
		}
	}
}

// A session is exported as one page that needs no server and no scripts. Secrets are redacted if a redactor is
// set.
func TestExportHTML(t *testing.T) {
	s := openShop(t)
	appendText(t, s, shopKey, "<script>alert(1)</script> mail me at ada@example.com")
	i := newInspector(t, s, inspector.Options{})
	status, page := getPage(t, i, "export", "key", shopKey.String(), "form", "html")
	for _, want := range []string{"What the model sees", "Raw log", `id="film"`, "ORDER-4711", "TR-88-1234567", "Ada asked for her lamp", "ada@example.com", "summarised 4 events", "&lt;script&gt;alert(1)", "@media print"} {
		if status != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("status %d, there is no %q in\n%s", status, want, page)
		}
	}
	for _, bad := range []string{"<script", "href=", "src=", "<form", "http://", "https://"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	var out bytes.Buffer
	by := testlog.Must(redact.New(redact.Options{}))(t)
	if err := inspector.WriteHTML(t.Context(), s, shopKey, &out, by); err != nil || strings.Contains(out.String(), "ada@example.com") || !strings.Contains(out.String(), by.Text("ada@example.com")) {
		t.Errorf("%v, redacted it is %s", err, out.String())
	}
	if err := inspector.WriteHTML(t.Context(), s, store.Key{App: "a", User: "b", Session: "c"}, &out, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of no session: %v", err)
	}
}

func TestExportNames(t *testing.T) {
	s := openShop(t)
	for key, want := range map[store.Key]string{
		{App: "..", User: "/etc/passwd", Session: "a\"b\r\nX: y;ü"}: "session-etc-passwd-a-b--X--y.jsonl",
		{App: "....", User: "....", Session: "...."}:                "session-.jsonl",
		{App: strings.Repeat("a", 200), User: "u", Session: "s"}:    "session-" + strings.Repeat("a", 100) + ".jsonl",
	} {
		importLog(t, s, key, "")
		got := ask(newInspector(t, s, inspector.Options{}), "GET", "/export?key="+url.QueryEscape(key.String()))
		if name := got.Header.Get("Content-Disposition"); name != "attachment; filename="+want {
			t.Errorf("%v: %d, %s, want %s", key, got.StatusCode, name, want)
		}
	}
}

// failingBackend is a backend that fails after a number of reads.
type failingBackend struct {
	backend.Backend
	reads atomic.Int64
}

func (b *failingBackend) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	if b.reads.Add(-1) < 0 {
		return nil, errors.New("the disk is gone")
	}
	return b.Backend.Read(ctx, session, creation, seqs, maxBytes)
}

// If an export fails after its start, the connection is aborted, so the file does not look complete.
func TestExportFails(t *testing.T) {
	b := &failingBackend{Backend: new(memory.Backend)}
	var log bytes.Buffer
	s := testlog.Must(store.New(b, store.Options{}))(t)
	defer s.Close()
	key := store.Key{App: "a", User: "u", Session: "s"}
	importLog(t, s, key, "")
	for n := range 600 {
		appendText(t, s, key, fmt.Sprint(n)+strings.Repeat(" long", 1_000))
	}
	server := httptest.NewServer(newInspector(t, s, inspector.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer server.Close()
	if got, err := http.Get(server.URL + "/export?key=a/u/s"); err != nil || got.StatusCode != http.StatusInternalServerError || got.Header.Get("Content-Disposition") != "" {
		t.Errorf("nothing can be read: %v, %v", got, err)
	}
	b.reads.Store(2) // reading the third page fails
	got := testlog.Must(http.Get(server.URL + "/export?key=a/u/s"))(t)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err == nil || got.StatusCode != http.StatusOK || len(text) == 0 || !strings.Contains(log.String(), "the download is incomplete") {
		t.Errorf("%d, %d bytes, %v, log %s", got.StatusCode, len(text), err, &log)
	}
}

var liveKey = store.Key{App: "shop", User: "ada", Session: "1"}

type eventStream struct {
	t     *testing.T
	lines *bufio.Scanner
}

// openStream opens the event stream of a session after a record. A browser that reconnects sends lastID.
func openStream(t *testing.T, server *httptest.Server, after uint64, creation, lastID string) *eventStream {
	t.Helper()
	q := url.Values{"key": {liveKey.String()}, "after": {fmt.Sprint(after)}, "creation": {creation}}
	r := testlog.Must(http.NewRequestWithContext(t.Context(), "GET", server.URL+"/live?"+q.Encode(), nil))(t)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	answer := testlog.Must(http.DefaultClient.Do(r))(t)
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %v", answer.StatusCode, answer.Header)
	}
	return &eventStream{t, bufio.NewScanner(answer.Body)}
}

// next returns the next event's name and data, or "" at the end.
func (f *eventStream) next() (name, data string) {
	f.t.Helper()
	for f.lines.Scan() {
		line := f.lines.Text()
		if text, ok := strings.CutPrefix(line, "event: "); ok {
			name = text
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			return name, text
		}
	}
	return "", ""
}

// waitForSeq reads events until one reports record last. It fails if the reported seqs do not increase.
func (f *eventStream) waitForSeq(last uint64) {
	f.t.Helper()
	for at := uint64(0); at < last; {
		name, data := f.next()
		var seq uint64
		if fmt.Sscan(data, &seq); name != "records" || seq <= at || seq > last {
			f.t.Fatalf("after record %d comes %s %s, and the log ends at %d", at, name, data, last)
		}
		at = seq
	}
}

func serveLive(t *testing.T, opts inspector.Options) (*store.Store, *httptest.Server, store.Info) {
	t.Helper()
	s := teststore.Memory(t, store.Options{})
	testlog.Must(s.Create(t.Context(), liveKey, nil, store.CreateOptions{}))(t)
	info := testlog.Must(s.Info(t.Context(), liveKey))(t)
	server := httptest.NewServer(newInspector(t, s, opts))
	t.Cleanup(server.Close)
	return s, server, info
}

func appendTexts(t *testing.T, s *store.Store, n int) {
	t.Helper()
	for range n {
		appendText(t, s, liveKey, "hello")
	}
}

func TestLive(t *testing.T) {
	s, server, info := serveLive(t, inspector.Options{})
	page := openStream(t, server, 0, info.Creation, "")
	appendTexts(t, s, 1)
	page.waitForSeq(1)
	appendTexts(t, s, 500)
	page.waitForSeq(501)

	// A client that reconnects sends the last id that it saw. It gets the newer records at once.
	late := openStream(t, server, 0, info.Creation, "400")
	if name, data := late.next(); name != "records" || data != "501" {
		t.Errorf("got %s %s", name, data)
	}
	// A client that has all records gets no event until another record is logged.
	whole := openStream(t, server, 501, info.Creation, "")
	appendTexts(t, s, 1)
	if name, data := whole.next(); name != "records" || data != "502" {
		t.Errorf("got %s %s", name, data)
	}
	page.waitForSeq(502)

	testlog.NoError(t, s.Delete(t.Context(), liveKey))
	for _, p := range []*eventStream{page, late, whole} {
		name, _ := p.next()
		for name == "records" {
			name, _ = p.next()
		}
		if name != "gone" {
			t.Errorf("for the deleted session got %q", name)
		}
		if name, _ := p.next(); name != "" {
			t.Errorf("after the end got %q", name)
		}
	}
	testlog.Must(s.Create(t.Context(), liveKey, nil, store.CreateOptions{}))(t)
	if name, _ := openStream(t, server, 502, info.Creation, "").next(); name != "gone" {
		t.Errorf("for a session that was created again got %q", name)
	}
}

// A page gets a few events per second, however fast the session grows.
func TestLiveRate(t *testing.T) {
	s, server, info := serveLive(t, inspector.Options{})
	page := openStream(t, server, 0, info.Creation, "")
	appendTexts(t, s, 1)
	page.waitForSeq(1)
	begun := time.Now()
	appendTexts(t, s, 2_000)
	told := 0
	for at := ""; at != "2001"; told++ {
		name := ""
		if name, at = page.next(); name == "" {
			t.Fatal("the stream has ended")
		}
	}
	if most := int(time.Since(begun)/(100*time.Millisecond)) + 2; told > most {
		t.Errorf("%d events in %v", told, time.Since(begun))
	}
}

// A client that loses read access gets no more events.
func TestLiveWithoutAccess(t *testing.T) {
	var may atomic.Bool
	may.Store(true)
	s, server, info := serveLive(t, inspector.Options{Authorize: func(*http.Request, store.Key, inspector.Access) bool { return may.Load() }})
	page := openStream(t, server, 0, info.Creation, "")
	appendTexts(t, s, 1)
	page.waitForSeq(1)
	may.Store(false)
	appendTexts(t, s, 1)
	if name, data := page.next(); name != "" {
		t.Errorf("got %s %s", name, data)
	}
}

// Pages that follow sessions prevent neither the server nor the store from closing.
func TestLiveAfterClose(t *testing.T) {
	s, server, info := serveLive(t, inspector.Options{})
	page := openStream(t, server, 0, info.Creation, "")
	appendTexts(t, s, 1)
	page.waitForSeq(1)
	testlog.NoError(t, s.Close())
	if name, data := page.next(); name != "" {
		t.Errorf("got %s %s", name, data)
	}
}

// runCommand runs the command on a database, and returns its output without truncated lines.
func runCommand(t *testing.T, db string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	env := func(name string) string { return map[string]string{"COLUMNS": "100000"}[name] }
	if code := command.Run(t.Context(), append(args, "--db", db), strings.NewReader(""), &out, &errs, env, command.Options{}); code != 0 {
		t.Fatalf("patchlog %q: %s", args, errs.String())
	}
	return out.String()
}

// pageText returns the text of a page with white space collapsed.
func pageText(t *testing.T, i *inspector.Inspector, page string, params url.Values) string {
	t.Helper()
	r := ask(i, "GET", "/"+page+"?"+params.Encode())
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%s?%s: status %d, %v\n%s", page, params.Encode(), r.StatusCode, err, body)
	}
	words := regexp.MustCompile(`(<a [^>]*>)?</?mark[^>]*>(</a>)?`).ReplaceAllString(string(body), "") // marks do not separate words
	words = regexp.MustCompile(`(?s)<[^>]*>`).ReplaceAllString(words, " ")
	return collapseSpace(html.UnescapeString(words))
}

func collapseSpace(text string) string { return strings.Join(strings.Fields(text), " ") }

// newCompactedDB returns a database with a recorded session that was compacted, cut, pinned, and partly reverted.
func newCompactedDB(t *testing.T) (db string, key store.Key) {
	t.Helper()
	db = filepath.Join(t.TempDir(), "sessions.db")
	key = store.Key{App: "shop", User: "ada", Session: "4711"}
	s := testlog.Must(store.Open(db, store.Options{}))(t)
	defer s.Close()
	ctx := t.Context()
	testlog.Must(s.Create(ctx, key, map[string]any{"tenant": "north"}, store.CreateOptions{}))(t)
	cfg := compaction.DefaultConfig()
	cfg.TokenThreshold, cfg.EventRetentionSize, cfg.CompactionInterval = 3_000, 6, 3
	c := testlog.Must(compaction.New(s, cfg, compaction.Options[store.Key]{}))(t)
	for n, r := range recorded.Log(t, 160) {
		testlog.Must(s.AppendEvents(ctx, key, []*patch.Event{r.Event}, store.AppendOptions{}))(t)
		if n%40 == 39 {
			testlog.Must(c.Compact(ctx, key, compaction.Run{Force: true}))(t)
		}
	}
	v := testlog.Must(s.View(ctx, key))(t)
	for _, p := range []*patch.PatchEvent{
		patch.NewPin(v.At(v.Len() - 1).ID()), patch.NewSplice(0, 1).WithID("the-cut"),
	} {
		testlog.Must(s.ApplyPatch(ctx, key, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))(t)
	}
	testlog.Must(s.Revert(ctx, key, "the-cut", store.UndoOptions{AllowOrphans: true}))(t)
	return db, key
}

// The pages show the same figures and lines as the command.
func TestPagesMatchCommand(t *testing.T) {
	db, key := newCompactedDB(t)
	s := testlog.Must(store.Open(db, store.Options{ReadOnly: true}))(t)
	defer s.Close()
	i := newInspector(t, s, inspector.Options{})
	of := func(pairs ...string) url.Values {
		v := url.Values{"key": {key.String()}}
		for n := 0; n < len(pairs); n += 2 {
			v.Set(pairs[n], pairs[n+1])
		}
		return v
	}
	last := 0
	fmt.Sscan(regexp.MustCompile(`records +(\d+)`).FindStringSubmatch(runCommand(t, db, "stats", key.String()))[1], &last)

	t.Run("stats", func(t *testing.T) {
		page := pageText(t, i, "figures", of()) + pageText(t, i, "state", of())
		figures, state, _ := strings.Cut(strings.TrimSpace(runCommand(t, db, "stats", key.String())), "\n\n")
		lines := strings.Split(figures, "\n")
		if len(lines) < 12 {
			t.Fatalf("%d lines", len(lines))
		}
		values := strings.Split(state, "\n")
		if len(values) < 2 {
			t.Fatalf("no state in %q", state)
		}
		for _, line := range append(lines[1:], values[1:]...) { // skips the key and a heading
			line = collapseSpace(line)
			said := strings.ReplaceAll(page, " ", "") // the page indents JSON
			if line := strings.ReplaceAll(line, " ", ""); !strings.Contains(said, line) && !strings.Contains(said, strings.ToUpper(line[:1])+line[1:]) {
				t.Errorf("the page does not say %q", line)
			}
		}
	})
	t.Run("diff", func(t *testing.T) {
		for _, span := range [][2]int{{0, last}, {39, 45}, {last - 2, last - 1}, {last - 1, last - 1}} {
			from, to := fmt.Sprint(span[0]), fmt.Sprint(span[1])
			page := pageText(t, i, "diff", of("from", from, "to", to))
			for _, line := range strings.Split(strings.TrimSpace(runCommand(t, db, "diff", key.String(), from, to)), "\n")[1:] {
				cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
				if last := cells[len(cells)-1]; last == "event" || last == "value" {
					continue // a heading
				} else if !strings.Contains(page, collapseSpace(last)) {
					t.Errorf("from %s to %s, the page does not say %q", from, to, last)
				}
			}
		}
	})
	t.Run("loss", func(t *testing.T) {
		said := runCommand(t, db, "loss", key.String())
		blocks := strings.Split(strings.TrimSpace(said), "\n\n")[1:]
		if len(blocks) == 0 {
			t.Fatal("no summary is visible")
		}
		for _, block := range blocks {
			index := regexp.MustCompile(`^index (\d+)`).FindStringSubmatch(block)[1]
			page := pageText(t, i, "summary", of("at", fmt.Sprint(last), "index", index))
			for _, line := range strings.Split(block, "\n")[2:] { // the page words the first lines differently
				_, line, _ = strings.Cut(line, ": ")
				if !strings.Contains(page, collapseSpace(line)) {
					t.Errorf("the page does not say %q", collapseSpace(line))
				}
			}
		}
	})
}
