package inspector_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// hitsIn returns what a page shows as found, each as a line of text with marks in brackets.
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
		hits   []string // how they begin, but for the score
	}{
		"words":          {[]string{"q", "teapot"}, "5 events found", []string{"record 5, hidden by p8 (record 8), user, 2025-01-02T00:00:00Z, And the green [teapot]?", "record 6, hidden by p8 (record 8), clerk, 2025-01-02T00:00:01Z, The [teapot] is sold out.", "record 4", "record 7, index 1, user, 2025-01-03T00:00:00Z, Then I take a second lamp, a lamp of brass.", "record 3"}},
		"what is hidden": {[]string{"q", "ORDER-4711", "hidden", "1"}, "", []string{"record 2, hidden by p9 (record 9), clerk"}},
		"an author":      {[]string{"q", "TR-88-1234567", "author", "clerk"}, "", []string{"record 3, hidden by p9 (record 9), clerk"}},
		"a tool":         {[]string{"q", "ORDER-4711", "tool", "track"}, "", []string{"record 2, hidden by"}},
		"summaries":      {[]string{"q", "ORDER-4712", "summaries", "1"}, "", []string{"record 9, index 0, user (summary), "}},
		"nothing":        {[]string{"q", "zeppelin"}, "0 events found", nil},
	} {
		status, page := getPage(t, i, "search", append([]string{"key", key}, c.params...)...)
		hits := hitsIn(page)
		if status != http.StatusOK || !strings.Contains(page, c.found) || len(hits) < len(c.hits) || c.found != "" && len(hits) != len(c.hits) {
			t.Errorf("%s: status %d, found %q, want %q:\n%s", name, status, hits, c.hits, page)
			continue
		}
		for n, want := range c.hits {
			if got := regexp.MustCompile(`score [\d.]+ `).ReplaceAllString(hits[n], ""); !strings.HasPrefix(got, want) {
				t.Errorf("%s: hit %d is %q, want %q", name, n, got, want)
			}
		}
	}

	// Links lead to the record, and to where it stands.
	_, page := getPage(t, i, "search", "key", key, "q", "lamp", "author", "user")
	for _, want := range []string{`href="record?id=e7&amp;key=shop%2Fada%2F1%252F2&amp;seq=7"`, `href="session?key=shop%2Fada%2F1%252F2&amp;visible=1#v1"`, `name="author" value="user"`, `<details open>`} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s in\n%s", want, page)
		}
	}
	if _, page := getPage(t, i, "search", "key", key, "q", "teapot"); !strings.Contains(page, `href="record?key=shop%2Fada%2F1%252F2&amp;seq=8"`) || strings.Contains(page, `<details open>`) {
		t.Errorf("there is no link to the patch, or the form is open:\n%s", page)
	}
}

// The scores are those of the store.
func TestSearchScores(t *testing.T) {
	s := openShop(t)
	hits, err := s.Search(t.Context(), shopKey, recall.Search{Query: "brass lamp"})
	if err != nil || len(hits) < 2 {
		t.Fatal(hits, err)
	}
	_, page := getPage(t, newInspector(t, s, inspector.Options{}), "search", "key", shopKey.String(), "q", "brass lamp")
	shown := hitsIn(page)
	if len(shown) != len(hits) {
		t.Fatalf("%d of %d are shown", len(shown), len(hits))
	}
	for n, h := range hits {
		if want := fmt.Sprintf("score %.2f ", h.Score); !strings.Contains(shown[n], want) || !strings.HasPrefix(shown[n], fmt.Sprintf("record %d,", h.Seq)) {
			t.Errorf("hit %d is %q, want record %d, %s", n, shown[n], h.Seq, want)
		}
	}
}

// What is wrong with a search is said beside what was typed.
func TestSearchProblems(t *testing.T) {
	i := newInspector(t, openShop(t), inspector.Options{})
	key := shopKey.String()
	for _, c := range []struct {
		status int
		want   string
		params []string
	}{
		{400, "search for: a word is missing", []string{"q", " ", "author", "clerk"}},
		{400, "search for: a word is missing", []string{"hidden", "1"}},
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

// What a request may not read is not found, does not count in the ranking, and is not told of.
func TestSearchAuthorized(t *testing.T) {
	other := store.Key{App: "shop", User: "ada", Session: "other"}
	secret := store.Key{App: "shop", User: "ada", Session: "secret"}
	page := func(withSecret bool, asked string) string {
		s := openShop(t)
		importLog(t, s, other, "")
		saySomething(t, s, other, "One more lamp stands in the kitchen.")
		if withSecret {
			importLog(t, s, secret, "")
			for range 20 {
				saySomething(t, s, secret, "The lamp hides the lamp, of brass.")
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
	if !strings.Contains(hits, "shop/ada/other, record 1, index 0, user") || !strings.Contains(hits, "record 7, index 1, user") {
		t.Errorf("found are\n%s", hits)
	}
	if hidden := page(true, secret.String()); !strings.Contains(hidden, "not found") || strings.Contains(hidden, "hides") {
		t.Errorf("it is asked for itself:\n%s", hidden)
	}
}

// A session that is created while a search has begun is asked about, too.
func TestSearchAuthorizedLate(t *testing.T) {
	s := openShop(t)
	late := store.Key{App: "shop", User: "ada", Session: "late"}
	asked := 0
	i := newInspector(t, s, inspector.Options{Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool {
		if asked++; asked == 2 { // of the session of the page first, then of what is listed
			importLog(t, s, late, "")
			saySomething(t, s, late, "lamp")
		}
		return key != late
	}})
	_, page := getPage(t, i, "search", "key", shopKey.String(), "q", "lamp", "all", "1")
	if len(hitsIn(page)) == 0 || strings.Contains(page, "late") {
		t.Errorf("found are %q", hitsIn(page))
	}
}

// All sessions that the viewer may read are searched, of whatever user, where no session is named.
func TestSearchEverywhere(t *testing.T) {
	s := openShop(t)
	other, secret := store.Key{App: "desk", User: "bob", Session: "1"}, store.Key{App: "desk", User: "eve", Session: "2"}
	for _, key := range []store.Key{other, secret} {
		importLog(t, s, key, "")
		saySomething(t, s, key, "The teapot is here.")
	}
	i := newInspector(t, s, inspector.Options{Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool { return key != secret }})
	_, page := getPage(t, i, "search", "q", "teapot")
	hits := strings.Join(hitsIn(page), "\n")
	if !strings.Contains(hits, "desk/bob/1, record 1,") || !strings.Contains(hits, "shop/ada/1%2F2, record 5") || strings.Contains(page, "desk/eve") {
		t.Errorf("found are %s", hits)
	}
}

func TestSearchHostile(t *testing.T) {
	testlog.OneGoroutine(t)
	s := openShop(t)
	saySomething(t, s, shopKey, "castle <script>alert(1)</script>\u202e javascript:x \x1b[31m "+strings.Repeat("castle ", 1_000_000))
	_, page := getPage(t, newInspector(t, s, inspector.Options{}), "search", "key", shopKey.String(), "q", "castle <img src=x onerror=alert(2)>")
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") || strings.ContainsAny(page, "\u202e\x1b") || len(page) > 60_000 {
		t.Errorf("%d bytes:\n%.5000s", len(page), page)
	}
	if hits := hitsIn(page); len(hits) == 0 || !strings.Contains(hits[0], `[castle] <script>[alert](1)</script>\u202e javascript:[x] \u001b[31m`) {
		t.Errorf("found are %q", hits)
	}
}
