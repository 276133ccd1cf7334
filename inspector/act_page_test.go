package inspector_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestHostileContentsOfActs(t *testing.T) {
	testlog.OneGoroutine(t)
	a := newActing(t, inspector.Options{Write: true, Author: func(*http.Request) string { return "<b>bob</b>" }})
	hostile := "</pre><script>alert(1)</script>\u202egnp.exe \x1b[31m \x00"
	id := "<img src=x onerror=alert(1)>\r\n\u202e'\""
	event := testlog.Must(patch.NewEvent(patch.Fields{ID: id, InvocationID: id, Author: "user", Content: patch.Text("user", hostile+strings.Repeat("long ", 2<<20)), Actions: patch.Actions{StateDelta: map[string]any{hostile: hostile}}}))(t)
	testlog.Must(a.store.AppendEvents(t.Context(), a.key, store.AppendOptions{}, event))(t)
	sound := func(page string) string {
		t.Helper()
		seen := actHidden.ReplaceAllString(page, "")
		for _, bad := range []string{"<script>", "<img", "<b>", "\u202e", "\x1b", "\x00"} {
			if strings.Contains(seen, bad) || bad != "\u202e" && strings.Contains(page, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
		if len(page) > 1<<20 {
			t.Errorf("the page has %d bytes", len(page))
		}
		return page
	}
	parts := strings.Repeat(`{"text":"`+strings.Repeat("many parts ", 30)+`"},`, 3000)
	a.append(`{"id":"parts","author":"user","content":{"role":"user","parts":[` + strings.TrimSuffix(parts, ",") + `]}}`)
	if page := sound(a.must(200, a.fields("splice", "index", "9"))); len(page) > 20_000 {
		t.Errorf("the page about an event of many parts has %d bytes", len(page))
	}
	if page := sound(a.must(200, a.fields("summarise", "index", "4", "text", strings.Repeat("x", 300_000)))); len(page) > 400_000 { // it comes along once
		t.Errorf("the page about a long text has %d bytes", len(page))
	}
	text := "<script>alert(2)</script> \u202e"
	page := sound(a.must(200, a.fields("summarise", "index", "8", "text", text)))
	page = sound(a.must(200, a.form(page, "Do it")))
	for _, p := range a.view().At(8).Content().Parts() {
		if p.Text != text {
			t.Errorf("the summary says %q", p.Text)
		}
	}
	sound(a.must(200, a.form(page, "Take it back …")))
	sound(a.must(200, a.fields("rewind", "seq", "9")))
	sound(a.must(200, a.fields("compact", "focus", text)))
	sound(a.must(400, a.fields("<script>alert(3)</script>")))
	sound(a.must(200, a.form(sound(a.must(200, a.fields("pin", "index", "8"))), "Do it")))
	sound(a.must(422, a.fields("splice", "index", "8")))
}

// The session's page offers acts where they are allowed and mean what is shown.
func TestTheSessionOffersActs(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.must(200, a.form(a.must(200, a.fields("splice", "index", "4")), "Do it"))
	get := func(h http.Handler, query string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/session?key="+url.QueryEscape(a.key.String())+query, nil))
		body, err := io.ReadAll(w.Result().Body)
		if err != nil || w.Code != 200 {
			t.Fatalf("status %d, %v", w.Code, err)
		}
		return string(body)
	}
	page := get(a.handler, "")
	for _, want := range []string{
		`<form id="acting" method="post" action="act">`, `<input type="checkbox" name="index" value="0" form="acting"`, `form="reverting" name="seq" value="9"`,
		`form="rewinding" name="seq" value="1"`, `form="forking" name="seq" value="3"`, `name="at" value="9"`, `name="creation" value="` + a.view().Creation() + `"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if strings.Contains(page, `form="rewinding" name="seq" value="2"`) || strings.Contains(page, `form="reverting" name="seq" value="1"`) {
		t.Error("a model's answer can be rewound to, or an event taken back")
	}
	readers := testlog.Must(inspector.New(a.store, inspector.Options{Write: true, Authorize: func(_ *http.Request, _ store.Key, want inspector.Access) bool { return want == inspector.Read }}))(t)
	for _, page := range []string{get(a.handler, "&at=9"), get(readers, ""), get(newActingOn(t, a.store, inspector.Options{}).handler, "")} {
		if strings.Contains(page, "<button name=\"act\"") || strings.Contains(page, `method="post"`) || strings.Contains(page, `name="index"`) || strings.Contains(page, `class="small"`) {
			t.Error("a page offers acts that should not")
		}
	}
}

// A preview says how much of the prompt a provider's cache can reuse.
func TestReuse(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	left := 0
	for i := 6; i < a.view().Len(); i++ {
		left += a.view().At(i).EstimatedTokens()
	}
	a.says(a.must(200, a.fields("splice", "index", "4", "index", "5")),
		fmt.Sprintf("The first index that changes is 4: a provider's prompt cache can reuse the 4 events before it, and about %d tokens are read anew.", left))
	a.says(a.must(200, a.fields("pin", "index", "4")), "What a model sees stays as it is")
}

// A long session can be acted on within a page's time and size.
func TestActingOnALongSession(t *testing.T) {
	testlog.OneGoroutine(t)
	a := newActing(t, inspector.Options{Write: true})
	var events []*patch.Event
	for n := range 10_000 {
		e := testlog.Must(patch.NewEvent(patch.Fields{Author: "user", Timestamp: time.Unix(int64(n), 0), Content: patch.Text("user", "turn")}))(t)
		events = append(events, e)
	}
	testlog.Must(a.store.AppendEvents(t.Context(), a.key, store.AppendOptions{}, events...))(t)
	page := a.must(200, a.fields("splice", "from", "4", "through", "9999"))
	if len(page) > 1<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	a.says(page, "and 9800 more events")
	a.must(200, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 12 {
		t.Errorf("%d events", v.Len())
	}
}
