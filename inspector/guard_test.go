package inspector_test

import (
	"bytes"
	"context"
	"errors"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// ask sends a request to an inspector, after the functions in change have modified the request.
func ask(h http.Handler, method, target string, change ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:7070"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func withHost(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
func withHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// Requests with a foreign Host header are refused. A site that uses DNS rebinding resolves its own host name to
// this machine, so its requests have that name in the header.
func TestHosts(t *testing.T) {
	i := newInspector(t, teststore.Memory(t, store.Options{}), inspector.Options{Hosts: []string{"agents.example.com", "2001:db8::1"}})
	for name, want := range map[string]int{
		"127.0.0.1:7070": 200, "127.8.9.1": 200, "localhost:80": 200, "LocalHost": 200, "[::1]:7070": 200, "[::1]": 200,
		"agents.example.com": 200, "AGENTS.example.com:8443": 200, "[2001:db8::1]:70": 200,
		"evil.example": 421, "": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "10.0.0.1": 421, "sub.agents.example.com": 421,
		"agents.example.com.": 421, "0.0.0.0:7070": 421,
	} {
		if got := ask(i, "GET", "/", withHost(name)).StatusCode; got != want {
			t.Errorf("host %q: status %d, want %d", name, got, want)
		}
	}
}

func TestToken(t *testing.T) {
	i := newInspector(t, teststore.Memory(t, store.Options{}), inspector.Options{Token: "s3cret"})
	for name, r := range map[string]*http.Response{
		"none":           ask(i, "GET", "/"),
		"another":        ask(i, "GET", "/?token=s3cre"),
		"another cookie": ask(i, "GET", "/", withHeader("Cookie", "patchlog_inspector=x")),
		"another bearer": ask(i, "GET", "/", withHeader("Authorization", "Bearer x")),
		"an asset":       ask(i, "GET", "/assets/style.css"),
		"a post":         ask(i, "POST", "/act?token=s3cret"),
	} {
		if r.StatusCode != http.StatusUnauthorized || len(r.Cookies()) > 0 {
			t.Errorf("%s: status %d, cookies %v", name, r.StatusCode, r.Cookies())
		}
	}
	if r := ask(i, "GET", "/", withHeader("Authorization", "Bearer s3cret")); r.StatusCode != 200 {
		t.Errorf("as a bearer: status %d", r.StatusCode)
	}
	in := ask(i, "GET", "/session?key=a%2Fb%2Fc&token=s3cret&at=3")
	if at := in.Header.Get("Location"); in.StatusCode != http.StatusSeeOther || at != "./session?at=3&key=a%2Fb%2Fc" {
		t.Fatalf("the token leads to %q, with status %d", at, in.StatusCode)
	}
	c := in.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Value != "s3cret" {
		t.Errorf("the cookie is %v", c)
	}
	if r := ask(i, "GET", "/", func(r *http.Request) { r.AddCookie(c) }); r.StatusCode != 200 {
		t.Errorf("with the cookie: status %d", r.StatusCode)
	}
	// Another inspector on the same host uses another cookie.
	other := ask(newInspector(t, teststore.Memory(t, store.Options{}), inspector.Options{Token: "other"}), "GET", "/?token=other").Cookies()[0]
	if other.Name == c.Name {
		t.Errorf("two tokens have the cookie %s", c.Name)
	}
	wrong := *c
	wrong.Value = "x"
	if r := ask(i, "GET", "/", func(r *http.Request) { r.AddCookie(&wrong) }); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("with another one's value: status %d", r.StatusCode)
	}
}

func TestHeaders(t *testing.T) {
	i := newInspector(t, teststore.Memory(t, store.Options{}), inspector.Options{})
	for _, target := range []string{"/", "/session?key=a/b/c", "/nowhere", "/assets/page.js"} {
		r := ask(i, "GET", target)
		policy := r.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: the policy is %q", target, policy)
		}
		if r.Header.Get("X-Content-Type-Options") != "nosniff" || r.Header.Get("Referrer-Policy") == "" {
			t.Errorf("%s: headers %v", target, r.Header)
		}
	}
}

// Without Options.Write no POST has an effect. With it, only a POST from the inspector's own pages has one.
func TestPostPermissions(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	reading, writing := newInspector(t, s, inspector.Options{}), newInspector(t, s, inspector.Options{Write: true})
	form := withHeader("Content-Type", "application/x-www-form-urlencoded")
	for _, target := range []string{"/", "/act", "/session?key=a/b/c", "/live?key=a/b/c"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			if got := ask(reading, method, target, form).StatusCode; got != http.StatusMethodNotAllowed && got != http.StatusNotFound {
				t.Errorf("%s %s: status %d", method, target, got)
			}
		}
	}
	for name, change := range map[string][]func(*http.Request){
		"another site":         {withHeader("Sec-Fetch-Site", "cross-site")},
		"another name of ours": {withHeader("Sec-Fetch-Site", "same-site")},
		"another origin":       {withHeader("Origin", "http://evil.example")},
		"another port":         {withHeader("Origin", "http://127.0.0.1:1")},
		"no origin of a page":  {withHeader("Origin", "null")},
	} {
		if got := ask(writing, "POST", "/act", append(change, form)...).StatusCode; got != http.StatusForbidden {
			t.Errorf("%s: status %d", name, got)
		}
	}
	if got := ask(writing, "POST", "/act", form, withHeader("Origin", "http://127.0.0.1:7070")).StatusCode; got == http.StatusForbidden {
		t.Errorf("its own page: status %d", got)
	}
}

func TestAuthorize(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	ada, bob := store.Key{App: "shop", User: "ada", Session: "1"}, store.Key{App: "shop", User: "bob", Session: "1"}
	for _, key := range []store.Key{ada, bob} {
		testlog.Must(s.Create(t.Context(), key, map[string]any{"secret": "of-" + key.User}, store.CreateOptions{}))(t)
		appendText(t, s, key, "secret")
	}
	i := newInspector(t, s, inspector.Options{Authorize: func(r *http.Request, key store.Key, want inspector.Access) bool {
		return key.User == r.Header.Get("User") && want == inspector.Read
	}})
	as := func(user string) func(*http.Request) { return withHeader("User", user) }
	for _, page := range []string{"session", "record", "media", "summary", "diff", "search", "live", "export"} {
		target := "/" + page + "?" + url.Values{"key": {bob.String()}, "q": {"secret"}, "seq": {"1"}, "from": {"0"}, "index": {"0"}, "form": {"json"}}.Encode()
		if r := ask(i, "GET", target, as("ada")); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s of another user's session: status %d", page, r.StatusCode)
		}
	}
	if r := ask(i, "GET", "/session?key="+ada.String(), as("ada")); r.StatusCode != 200 {
		t.Errorf("the user's own session: status %d", r.StatusCode)
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for name, opts := range map[string]inspector.Options{
		"a port":   {Hosts: []string{"example.com:80"}},
		"a URL":    {Hosts: []string{"http://example.com"}},
		"no name":  {Hosts: []string{""}},
		"a blank":  {Token: "a b"},
		"a letter": {Token: "ä"},
	} {
		if _, err := inspector.New(teststore.Memory(t, store.Options{}), opts); !errors.Is(err, patch.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := inspector.New(nil, inspector.Options{}); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
}

// The settings of a compaction configuration that is not enabled override the defaults.
func TestCompactionSettings(t *testing.T) {
	asked := ""
	by := testlog.Must(redact.New(redact.Options{}))(t)
	a := newActionTest(t, inspector.Options{Write: true, Compaction: compaction.Config{Redact: by, EventRetentionSize: 1, Summarizer: compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		asked = r.Prompt
		return compaction.Response{Text: "in short"}, nil
	})}})
	a.append(`{"invocationId":"i4","author":"user","content":{"role":"user","parts":[{"text":"write to bob@example.com"}]}}`)
	a.appendTurns(20)
	a.mustPost(303, a.form(a.mustPost(200, a.fields("compact")), "Do it"))
	if asked == "" || strings.Contains(asked, "bob@example.com") {
		t.Errorf("the summarizer was asked %q", asked)
	}
}

// Only the URL determines a page. A form in the body of a GET request changes no page, and no request leaves
// files on disk.
func TestBodiesAreIgnored(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	testlog.NoError(t, form.WriteField("at", "3"))
	file := testlog.Must(form.CreateFormFile("file", "large"))(t)
	testlog.Must(file.Write(make([]byte, 40<<20)))(t) // too large for the memory that a form may use
	testlog.NoError(t, form.Close())
	i := newInspector(t, openShop(t), inspector.Options{Write: true})
	key := url.Values{"key": {shopKey.String()}}.Encode()
	for _, target := range []struct{ method, path string }{{"GET", "/session?" + key}, {"GET", "/"}, {"GET", "/nowhere"}, {"POST", "/act"}} {
		r := httptest.NewRequest(target.method, "http://localhost"+target.path, bytes.NewReader(body.Bytes()))
		r.Header.Set("Content-Type", form.FormDataContentType())
		i.ServeHTTP(httptest.NewRecorder(), r)
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Fatalf("%s %s: files %v, %v", target.method, target.path, files, err)
		}
	}
	if _, page := getPage(t, i, "session", "key", shopKey.String()); strings.Contains(page, "record 3 of") {
		t.Error("the page is of the record that another request had in its body")
	}
}
