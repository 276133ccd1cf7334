package inspector_test

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

// Only requests with write access that come from this inspector's pages have an effect.
func TestRefusedActions(t *testing.T) {
	for name, c := range map[string]struct {
		opts   inspector.Options
		field  []string // replacements for fields of the previewed form
		change func(*http.Request)
		status []int
	}{
		"without Write":         {inspector.Options{}, nil, nil, []int{404, 405}},
		"of another site":       {inspector.Options{Write: true}, nil, withHeader("Origin", "http://evil.example"), []int{403}},
		"of a sandboxed frame":  {inspector.Options{Write: true}, nil, withHeader("Origin", "null"), []int{403}},
		"fetched across sites":  {inspector.Options{Write: true}, nil, withHeader("Sec-Fetch-Site", "cross-site"), []int{403}},
		"to another name":       {inspector.Options{Write: true}, nil, func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Origin", "http://evil.example") }, []int{421}},
		"without the token":     {inspector.Options{Write: true, Token: "t0ken"}, nil, nil, []int{401}},
		"who may not see it":    {inspector.Options{Write: true, Authorize: func(*http.Request, store.Key, inspector.Access) bool { return false }}, nil, nil, []int{404}},
		"who may read only":     {inspector.Options{Write: true, Authorize: func(_ *http.Request, _ store.Key, want inspector.Access) bool { return want == inspector.Read }}, nil, nil, []int{403}},
		"of no form":            {inspector.Options{Write: true}, nil, withHeader("Content-Type", "text/plain"), []int{400}},
		"of several parts":      {inspector.Options{Write: true}, nil, withHeader("Content-Type", "multipart/form-data; boundary=x"), []int{400}},
		"with an address":       {inspector.Options{Write: true}, nil, func(r *http.Request) { r.URL.RawQuery = "key=shop%2Fada%2F4711" }, []int{400}},
		"with an unknown field": {inspector.Options{Write: true}, []string{"colour", "red"}, nil, []int{400}},
		"of an unknown act":     {inspector.Options{Write: true}, []string{"act", "delete"}, nil, []int{400}},
		"of another creation":   {inspector.Options{Write: true}, []string{"creation", "other"}, nil, []int{409}},
		"of no creation":        {inspector.Options{Write: true}, []string{"creation", ""}, nil, []int{400}},
		"of a later record":     {inspector.Options{Write: true}, []string{"at", "99"}, nil, []int{404}},
		"of unknown events":     {inspector.Options{Write: true}, []string{"through", "8"}, nil, []int{422}},
		"of half a stretch":     {inspector.Options{Write: true}, []string{"through", ""}, nil, []int{400}},
		"of unknown rules":      {inspector.Options{Write: true}, []string{"allow_pinned", "perhaps"}, nil, []int{400}},
		"of an unknown policy":  {inspector.Options{Write: true}, []string{"state", "burn"}, nil, []int{400}},
		"of too much":           {inspector.Options{Write: true}, []string{"text", strings.Repeat("x", 1<<20)}, nil, []int{413}},
		"that drives terminals": {inspector.Options{Write: true}, []string{"text", "a\x1b[2Jb"}, nil, []int{400}},
		"that is not UTF-8":     {inspector.Options{Write: true}, []string{"text", "a\xffb"}, nil, []int{400}},
	} {
		t.Run(name, func(t *testing.T) {
			open := newActionTest(t, inspector.Options{Write: true})
			do := open.form(open.mustPost(200, open.fields("splice", "index", "4")), "Do it")
			a := newActionTestOn(t, open.store, c.opts)
			for n := 0; n < len(c.field); n += 2 {
				do.Set(c.field[n], c.field[n+1])
			}
			change := func(*http.Request) {}
			if c.change != nil {
				change = c.change
			}
			if status, page := a.post(do, change); !slices.Contains(c.status, status) {
				t.Errorf("status %d, want %v:\n%s", status, c.status, actText(page))
			}
			// A preview needs write access. It may come from another site, because it writes nothing.
			if do.Set("step", "preview"); slices.Contains([]int{404, 401, 421}, c.status[0]) || name == "who may read only" {
				if status, page := a.post(do, change); !slices.Contains(c.status, status) {
					t.Errorf("preview: status %d, want %v:\n%s", status, c.status, actText(page))
				}
			}
			if n := len(a.log()); n != 8 {
				t.Errorf("%d records", n)
			}
		})
	}
	t.Run("by an address", func(t *testing.T) {
		a := newActionTest(t, inspector.Options{Write: true})
		do := a.form(a.mustPost(200, a.fields("splice", "index", "4")), "Do it")
		if got := ask(a.handler, "GET", "/act?"+do.Encode()); len(a.log()) != 8 || got.StatusCode != 200 { // GET only previews
			t.Errorf("status %d, %d records", got.StatusCode, len(a.log()))
		}
		for _, field := range []string{"at", "from", "seq"} {
			f := a.fields("splice", "index", "1")
			f.Set(field, "-1")
			a.mustPost(400, f)
		}
		a.mustPost(400, a.fields("splice", "from", "3", "through", "2"))
		a.mustPost(400, a.fields("splice", "from", "0"))
		a.mustPost(400, a.fields("splice", "through", "3"))
		a.mustPost(422, a.fields("splice", "from", "0", "through", "20000"))
		a.mustPost(400, a.fields("splice", "index", "x"))
		a.mustPost(422, a.fields("splice", "index", "8"))
		a.mustPost(400, a.fields("splice", "index", "1", "act", "splice"))
	})
}

func TestPreviewReadOnlyStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := testlog.Must(store.Open(path, store.Options{}))(t)
	a := newActionTestOn(t, s, inspector.Options{Write: true})
	a.appendTurns(10)
	a.mustPost(303, a.form(a.mustPost(200, a.fields("splice", "index", "4")), "Do it"))
	testlog.NoError(t, s.Close())
	s = testlog.Must(store.Open(path, store.Options{ReadOnly: true}))(t)
	defer s.Close()
	a = newActionTestOn(t, s, inspector.Options{Write: true})
	for _, f := range []url.Values{
		a.fields("splice", "index", "4"), a.fields("pin", "index", "4"), a.fields("summarise", "index", "4", "text", "x"),
		a.fields("revert", "seq", fmt.Sprint(len(a.log()))), a.fields("rewind", "seq", "6"), a.fields("fork"), a.fields("compact"),
	} {
		page := a.mustPost(200, f)
		if status, _ := a.post(a.form(page, "Do it")); status != 403 && !(f.Get("act") == "compact" && status == 502) {
			t.Errorf("%s: status %d", f.Get("act"), status)
		}
	}
}
