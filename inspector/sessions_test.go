package inspector

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

type listingEnv struct {
	testing.TB
	store     *store.Store
	inspector *Inspector
	lines     map[store.Key][]string
}

func newListingEnv(t testing.TB, b backend.Backend, opts Options) *listingEnv {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	day := time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC)
	created := 0
	s, err := store.New(b, store.Options{Logger: quiet, Now: func() time.Time {
		created++
		return day.Add(time.Duration(created*7919%10007) * time.Minute)
	}})
	testlog.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	opts.Logger = quiet
	i := testlog.Must(New(s, opts))(t)
	return &listingEnv{t, s, i, map[store.Key][]string{}}
}

func (e *listingEnv) add(key store.Key, lines ...string) {
	e.Helper()
	e.lines[key] = append(e.lines[key], lines...)
	testlog.Must(e.store.Import(e.Context(), key, strings.NewReader(strings.Join(e.lines[key], "\n")), store.ImportOptions{}))(e)
}

func (e *listingEnv) create(key store.Key) {
	e.Helper()
	testlog.Must(e.store.Create(e.Context(), key, nil, store.CreateOptions{}))(e)
}

func (e *listingEnv) get(address string, status int) string {
	e.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(e.Context(), http.MethodGet, "http://localhost/"+strings.TrimPrefix(address, "./"), nil)
	e.inspector.ServeHTTP(w, r)
	if w.Code != status {
		e.Fatalf("GET %s: status %d, want %d:\n%s", address, w.Code, status, w.Body)
	}
	return w.Body.String()
}

var (
	listingRow  = regexp.MustCompile(`(?s)<li class="session.*?</li>`)
	listingLink = regexp.MustCompile(`href="(session\?[^"]*)"`)
	listingCell = regexp.MustCompile(`(?s)<(?:a|span|time) class="(?:name|of|figure|used|problem)"[^>]*>(.*?)</(?:a|span|time)>`)
	listingTag  = regexp.MustCompile(`<[^>]*>`)
	listingHref = regexp.MustCompile(`href="(\./[^"]*)">([^<]*)</a>`)
)

// rowsOf returns the rows of a page: the key that each row links to, or "", and the texts of its cells.
func (e *listingEnv) rowsOf(page string) (keys []string, cells [][]string) {
	e.Helper()
	for _, row := range listingRow.FindAllString(page, -1) {
		key := ""
		if m := listingLink.FindStringSubmatch(row); m != nil {
			u := testlog.Must(url.Parse(html.UnescapeString(m[1])))(e)
			key = u.Query().Get("key")
		}
		var texts []string
		for _, c := range listingCell.FindAllStringSubmatch(row, -1) {
			text := html.UnescapeString(listingTag.ReplaceAllString(c[1], " "))
			texts = append(texts, strings.Join(strings.Fields(text), " "))
		}
		keys, cells = append(keys, key), append(cells, texts)
	}
	return keys, cells
}

// allKeys returns the sessions of a page and of all later pages, which it finds by their links.
func (e *listingEnv) allKeys(address string) (keys []string) {
	e.Helper()
	for range 100 {
		page := e.get(address, http.StatusOK)
		some, _ := e.rowsOf(page)
		keys = append(keys, some...)
		address = ""
		for _, m := range listingHref.FindAllStringSubmatch(page, -1) {
			if m[2] == "Next" {
				address = html.UnescapeString(m[1])
			}
		}
		if address == "" {
			return keys
		}
	}
	e.Fatal("the pages have no end")
	return nil
}

// wantContains fails the test unless the page contains the text.
func (e *listingEnv) wantContains(page, text string) {
	e.Helper()
	if !strings.Contains(page, text) {
		e.Errorf("the page lacks %q:\n%s", text, page[max(strings.Index(page, "<main"), 0):])
	}
}

func (e *listingEnv) wantOmits(page, text string) {
	e.Helper()
	if strings.Contains(page, text) {
		e.Errorf("the page has %q:\n%s", text, page[max(strings.Index(page, "<main"), 0):])
	}
}

func (e *listingEnv) wantEqual(what string, got, want any) {
	e.Helper()
	if !reflect.DeepEqual(got, want) {
		e.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func sessionKey(n int) store.Key {
	return store.Key{App: fmt.Sprint("app", n%3), User: fmt.Sprint("user", n%7), Session: fmt.Sprintf("s%04d", n)}
}

func eventLine(id, author, text string) string {
	role := "model"
	if author == "user" {
		role = "user"
	}
	return fmt.Sprintf(`{"id":%q,"invocationId":%q,"author":%q,"content":{"role":%q,"parts":[{"text":%q}]}}`, id, "i"+id, author, role, text)
}

func passLine(id string, start, count, minute int) string {
	return fmt.Sprintf(`{"id":%q,"author":"compaction","patchType":"summarise","timestamp":"2025-01-02T03:%02d:06Z","start":%d,"count":%d,`+
		`"summaryEvent":{"id":"s-%s","author":"user","content":{"role":"user","parts":[{"text":"in short"}]},"customMetadata":{"patchlog":{"level":1}}},`+
		`"customMetadata":{"patchlog":{"trigger":"tokens","level":1,"eventsBefore":%[4]d,"eventsAfter":1,"tokensBefore":2000,"tokensAfter":3,"ratio":0.0015}}}`, id, minute, start, count, id)
}

// The list shows the figures of 'patchlog stats', and the times of the last activity and compaction.
func TestListingFigures(t *testing.T) {
	e := newListingEnv(t, &memory.Backend{}, Options{})
	key := sessionKey(1)
	e.add(key, eventLine("a", "user", "hello there"), eventLine("b", "agent", "hi"), eventLine("c", "user", "more"), passLine("p", 0, 2, 5))
	stats, _, err := present.Measure(t.Context(), e.store, key, nil, nil)
	testlog.NoError(t, err)
	_, cells := e.rowsOf(e.get("", http.StatusOK))
	e.wantEqual("figures", cells[0][2:], []string{fmt.Sprintf("%s of %s", shortTokens(stats.Tokens.Visible), shortTokens(stats.Tokens.Raw)), timeAgo(time.Now(), present.LastActivity(testlog.Must(e.store.Info(t.Context(), key))(t)))})
	e.wantContains(e.get("", http.StatusOK), fmt.Sprintf("%.0f percent of the tokens are visible", 100*float64(stats.Tokens.Visible)/float64(stats.Tokens.Raw)))
}

// Every column sorts in both directions, and the pages list each session once.
func TestListingSorts(t *testing.T) {
	e := newListingEnv(t, &memory.Backend{}, Options{})
	for n := range 230 {
		if e.create(sessionKey(n)); n%9 == 0 {
			e.add(sessionKey(n), eventLine("a", "user", "hello"))
		}
	}
	list := e.allKeys("./?sort=key")
	if len(list) != 230 || !slices.IsSorted(list) {
		t.Fatalf("%d sessions", len(list))
	}
	for _, column := range []string{"key", "-key", "created", "-created", "records", "-records"} {
		keys := e.allKeys("./?sort=" + column)
		info := func(n int) store.Info {
			key, _ := store.ParseKey(keys[n])
			return testlog.Must(e.store.Info(t.Context(), key))(t)
		}
		for n := range len(keys) - 1 {
			a, b := info(n), info(n+1)
			if strings.HasPrefix(column, "-") {
				a, b = b, a
			}
			if strings.HasSuffix(column, "created") && a.Created.After(b.Created) || strings.HasSuffix(column, "records") && a.Seq > b.Seq || strings.HasSuffix(column, "key") && a.Key.String() > b.Key.String() {
				t.Fatalf("%s: %v before %v", column, keys[n], keys[n+1])
			}
		}
		slices.Sort(keys)
		e.wantEqual(column, keys, list)
	}
	e.wantContains(e.get("./?sort=colour", http.StatusBadRequest), "there is no column")
}

// A search lists the sessions whose keys contain all words. It ignores case.
func TestListingSearch(t *testing.T) {
	e := newListingEnv(t, &memory.Backend{}, Options{})
	for _, key := range []store.Key{{App: "shop", User: "Ada", Session: "Order 1"}, {App: "shop", User: "bob", Session: "order/2"}, {App: "shop2", User: "ada", Session: "chat"}} {
		e.create(key)
	}
	one, two, three := "shop/Ada/Order%201", "shop/bob/order%2F2", "shop2/ada/chat"
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"q=ada", []string{one, three}},
		{"q=ADA+order", []string{one}},
		{"q=order+ada+ORDER", []string{one}},
		{"q=order/2", []string{two}},
		{"q=" + url.QueryEscape("shop/bob/order%2f2"), []string{two}},
		{"q=none", nil},
		{"q=shop/+order&sort=-key", []string{two, one}},
	} {
		if !strings.Contains(c.query, "sort=") {
			c.query += "&sort=key"
		}
		page := e.get("./?"+c.query, http.StatusOK)
		keys, _ := e.rowsOf(page)
		e.wantEqual(c.query, keys, c.want)
		if c.want == nil {
			e.wantContains(page, "No name matches")
		} else {
			e.wantContains(page, fmt.Sprintf("1 to %d of %d that match.", len(c.want), len(c.want)))
		}
	}
	// The form and the links keep the query.
	page := e.get("./?q=o", http.StatusOK)
	for _, text := range []string{`name="q" value="o"`, `href="./?q=o&amp;sort=-records"`} {
		e.wantContains(page, text)
	}
}

// Sessions without read access are neither shown nor counted. Authorize is called for each session.
func TestListingAuthorize(t *testing.T) {
	var asked []string
	e := newListingEnv(t, &memory.Backend{}, Options{Authorize: func(r *http.Request, key store.Key, want Access) bool {
		asked = append(asked, key.String())
		return want == Read && r.Header.Get("Cookie") == "" && key.User == "ada"
	}})
	for n, user := range []string{"ada", "mallory", "ada", "mallory"} {
		e.create(store.Key{App: "app-of-" + user, User: user, Session: fmt.Sprint(n)})
	}
	for _, query := range []string{"", "?sort=-records", "?q=0", "?q=nothing"} {
		asked = nil
		page := e.get("./"+query, http.StatusOK)
		e.wantOmits(page, "mallory")
		slices.Sort(asked)
		e.wantEqual("asked", slices.Compact(asked), []string{"app-of-ada/ada/0", "app-of-ada/ada/2", "app-of-mallory/mallory/1", "app-of-mallory/mallory/3"})
	}
	e.wantContains(e.get("", http.StatusOK), "<strong>2</strong> sessions")
	e.wantContains(e.get("./?q=mallory", http.StatusOK), "No name matches")
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://localhost/?sort=-records", nil)
	r.Header.Set("Cookie", "who=somebody")
	e.inspector.ServeHTTP(w, r)
	e.wantContains(w.Body.String(), "There is no session yet")
	e.wantOmits(w.Body.String(), "ada")
}

// namelessBackend is a backend with a session whose name is damaged.
type namelessBackend struct{ memory.Backend }

func (b *namelessBackend) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	out, err := b.Backend.List(ctx, prefix, after, limit)
	return append(out, backend.Listed{Session: "\xffno \u202ename"}), err
}

// A session without a readable key is listed only if Authorize is nil. It has no link.
func TestListingWithoutAName(t *testing.T) {
	for _, all := range []bool{true, false} {
		opts := Options{}
		if !all {
			opts.Authorize = func(*http.Request, store.Key, Access) bool { return true }
		}
		e := newListingEnv(t, &namelessBackend{}, opts)
		e.create(sessionKey(1))
		page := e.get("", http.StatusOK)
		keys, cells := e.rowsOf(page)
		e.wantOmits(page, "\u202e")
		if !all {
			e.wantEqual("sessions", keys, []string{sessionKey(1).String()})
			continue
		}
		at := slices.Index(keys, "")
		if at < 0 || len(keys) != 2 {
			t.Fatalf("sessions %q", keys)
		}
		e.wantEqual("name", cells[at][0], "a session without a name")
		e.wantContains(cells[at][1], "no \\u202ename")
		keys, _ = e.rowsOf(e.get("./?q=s", http.StatusOK))
		e.wantEqual("of a search", keys, []string{sessionKey(1).String()})
	}
}

// Any key is shown as text and links to its own session.
func TestListingHostileNames(t *testing.T) {
	names := []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "a/b", "a%2Fb", "a%252Fb", "..", ".", "\u202egnp.exe", "javascript:alert(1)",
		"{{.Key}}", "a&b=c", "?#", "\x1b[31mred", " ", "\x00", "\x00\x01", "𝔘", strings.Repeat("w", store.MaxKeyPartBytes), "+", "'';--",
	}
	e := newListingEnv(t, &memory.Backend{}, Options{})
	var want []string
	for n, name := range names {
		key := store.Key{App: name, User: names[(n+3)%len(names)], Session: names[(n+7)%len(names)]}
		e.create(key)
		want = append(want, key.String())
	}
	page := e.get("", http.StatusOK)
	got, _ := e.rowsOf(page)
	slices.Sort(got)
	slices.Sort(want)
	e.wantEqual("sessions", got, want)
	for _, bad := range []string{"<script>alert", "<img", "\u202e", "\x1b", "\x00", `href="javascript`, strings.Repeat("w", 200) + "<"} {
		e.wantOmits(page[strings.Index(page, "<ol class=\"sessions"):], bad)
	}
	e.wantOmits(page, "<script>alert")
}

func TestListingEmpty(t *testing.T) {
	e := newListingEnv(t, &memory.Backend{}, Options{})
	for _, query := range []string{"", "?sort=-created", "?page=7", "?q=x"} {
		page := e.get("./"+query, http.StatusOK)
		e.wantContains(page, "There is no session yet")
		e.wantContains(page, "patchlog import")
	}
}

// A page of 100 rows is at most a megabyte.
func TestListingPageSize(t *testing.T) {
	e := newListingEnv(t, &memory.Backend{}, Options{})
	for n := range 150 {
		key := sessionKey(n)
		key.Session += strings.Repeat("<", 500)
		e.add(key, eventLine("a", "user", "hello"), passLine("p", 0, 1, 1))
	}
	if page := e.get("", http.StatusOK); len(page) > 1<<20 {
		t.Errorf("it has %d bytes", len(page))
	}
}

// The page of each error of the store explains the error and says where to continue.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err    error
		advice string
		link   string // part of the link's URL; "" if there is no link
	}{
		{&store.SeqError{Expected: 3, Last: 4}, "The session has changed since this page was loaded", "session?key=a%2Fb%2Fc"},
		{fold.ErrOutOfRange, "choose again", "session?"},
		{fold.ErrEventNotFound, "not visible", "session?"},
		{fold.ErrUnknownPatch, "newer version", ""},
		{store.ErrExists, "Choose another key", ""},
		{&store.DuplicateIDError{ID: "x", Seq: 5}, "already has a record", "record?key=a%2Fb%2Fc&seq=5"},
		{store.ErrOutcomeUnknown, "Check the session before", "session?"},
		{errForbidden, "not change it", "session?"},
		{store.ErrReadOnly, "open for reading", ""},
		{store.ErrClosed, "Try again", ""},
		{store.ErrLocked, "Another program", ""},
		{&store.CorruptError{Seq: 8, Err: errors.New("damaged")}, "Record 8 is damaged and cannot be read", "session?at=7"},
		{store.ErrCorrupt, "patchlog verify", ""},
		{store.ErrTooLarge, "larger than the store accepts", ""},
		{store.ErrNotFound, "may have been deleted", ""},
		{store.ErrInvalid, "is not valid", "session?"},
		{badRequest("x", "y"), "is not valid", "session?"},
		{context.DeadlineExceeded, "took too long", ""},
	} {
		got := newExplanation(httptest.NewRequest("GET", "http://localhost/record?key=a/b/c", nil), fmt.Errorf("session a/b/c: %w", c.err))
		if !strings.Contains(got.Advice, c.advice) || !strings.HasPrefix(got.Text, "session a/b/c: ") {
			t.Errorf("%v: %+v", c.err, got)
		}
		if (got.Link != nil) != (c.link != "") || got.Link != nil && (!strings.Contains(string(got.Link.URL), c.link) || got.Link.Text == "") {
			t.Errorf("%v: link %+v, want %q", c.err, got.Link, c.link)
		}
		if got := newExplanation(httptest.NewRequest("GET", "http://localhost/record?key=nonsense", nil), c.err); got.Link != nil {
			t.Errorf("%v: of no session, but link %+v", c.err, got.Link)
		}
	}
	r := httptest.NewRequest("GET", "http://localhost/record", nil)
	if got := newExplanation(r, errors.New("open /var/lib/secret.db: no")); strings.Contains(got.Text+got.Advice, "secret") || got.Advice == "" {
		t.Errorf("the page has details for operators: %+v", got)
	}
	if got := newExplanation(r, fmt.Errorf("%w: %s", store.ErrNotFound, strings.Repeat("\x1b", 1<<20))); len(got.Text) > 20_000 || strings.Contains(got.Text, "\x1b") {
		t.Errorf("%d bytes: %.40q", len(got.Text), got.Text)
	}
}

// slowServer serves an inspector with a short body timeout. The server itself has no timeouts.
func slowServer(t *testing.T, timeout time.Duration, opts Options) *httptest.Server {
	t.Helper()
	s := teststore.Memory(t, store.Options{})
	i := testlog.Must(New(s, opts))(t)
	i.bodyTimeout = timeout
	mux := http.NewServeMux()
	mux.Handle("/inspector/", http.StripPrefix("/inspector", i))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// If a client does not send the body that it announced, it gets a response and the connection is closed. It
// does not matter whether a handler reads the body.
func TestSlowBody(t *testing.T) {
	server := slowServer(t, 50*time.Millisecond, Options{Write: true})
	for _, c := range []struct{ method, path, host, status string }{
		{"POST", "act", "localhost", "408"},
		{"POST", "nothing", "localhost", "405"},
		{"POST", "act", "elsewhere.example", "421"},
		{"GET", "nothing", "localhost", "404"},
	} {
		conn := testlog.Must(net.Dial("tcp", server.Listener.Addr().String()))(t)
		defer conn.Close()
		fmt.Fprintf(conn, "%s /inspector/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nact=", c.method, c.path, c.host)
		answer, err := io.ReadAll(conn) // until the server closes the connection
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.status) {
			t.Errorf("%s %s of %s: %v, %.200s", c.method, c.path, c.host, err, answer)
		}
	}
}

// After a body was read, its deadline does not affect the response.
func TestSlowResponse(t *testing.T) {
	const timeout = 200 * time.Millisecond
	asked := false
	server := slowServer(t, timeout, Options{Write: true, Authorize: func(r *http.Request, _ store.Key, _ Access) bool {
		asked = true
		select {
		case <-r.Context().Done():
			t.Error("the request was cancelled")
		case <-time.After(2 * timeout):
		}
		return false
	}})
	answer := testlog.Must(http.Post(server.URL+"/inspector/act", "application/x-www-form-urlencoded", strings.NewReader("act=pin&key=a/u/s")))(t)
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound || !asked {
		t.Errorf("status %d, authorized: %v", answer.StatusCode, asked)
	}
}
