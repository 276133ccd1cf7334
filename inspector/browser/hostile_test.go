package browser

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Session contents are shown as text. They never run, load, link or change the layout.
func TestHostileContent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{Write: true})
	key := store.Key{App: `<script>alert(1)</script>`, User: `"><img src=x onerror=alert(2)>`, Session: "\u202egpj.exe\x1b[31m/.."}
	state := map[string]any{`<svg onload=alert(3)>`: `</script><script>alert(4)</script>`, "long": strings.Repeat("x", 1<<20)}
	testlog.Must(f.Create(t.Context(), key, state, store.CreateOptions{}))(t)
	texts := []string{
		`<script>alert(5)</script>`, `<img src=x onerror=alert(6)>`, `<a href="javascript:alert(7)">click</a>`, `javascript:alert(8)`,
		"\x1b[2J\x1b[31mred\x07", "abc\u202edcba\u202c\u2066x\u2069", "a\x00b\ufeff\u200bc", `{{.Body}}{{template "head"}}`, `<div hx-get="/" hx-trigger="load" hx-on:load="alert(9)">`,
		`<style>*{display:none}</style>`, `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(10)"/>`, `<meta http-equiv="refresh" content="0;url=http://evil.example">`,
		`https://evil.example/track`, strings.Repeat("W", 300), strings.Repeat("long ", 2<<20),
	}
	for _, text := range texts {
		f.appendText(key, "agent", text[:min(len(text), 900)])
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: "id-" + text[:min(len(text), 60)], Author: text[:min(len(text), 60)], Content: patch.Text("user", text)}))(t)
		testlog.Must(f.AppendEvents(t.Context(), key, []*patch.Event{e}, store.AppendOptions{}))(t)
	}
	media := testlog.Must(patch.ParseEvent([]byte(`{"id":"media","author":"user","content":{"role":"user","parts":[
		{"inlineData":{"mimeType":"image/svg+xml","data":"PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0iYWxlcnQoMTEpIi8+"}},
		{"inlineData":{"mimeType":"image/png","data":"PHNjcmlwdD5hbGVydCgxMik8L3NjcmlwdD4="}},
		{"inlineData":{"mimeType":"text/html","data":"PHNjcmlwdD5hbGVydCgxMyk8L3NjcmlwdD4="}},
		{"fileData":{"fileUri":"javascript:alert(14)","mimeType":"text/html"}}]}}`)))(t)
	testlog.Must(f.AppendEvents(t.Context(), key, []*patch.Event{media}, store.AppendOptions{}))(t)
	f.apply(key, patch.NewSummarise(0, 6, testlog.Text("", "", "user", texts[0]+texts[5])).WithID(`<b onclick="alert(15)">`))
	p := openPage(t, f.base, pageOptions{})
	views := []string{
		"./", address("session", key), address("session", key, "at", "9", "log", "1"), address("session", key, "visible", "0"),
		address("diff", key, "from", "0", "to", "32"), address("summary", key, "at", "32", "index", "0"),
		address("search", key, "q", texts[0]), address("search", key, "q", "script alert red"),
	}
	for seq := range f.view(key).Seq() {
		views = append(views, address("record", key, "seq", decimal(seq+1)))
	}
	for _, view := range views {
		p.Go(view)
		p.Overflow()
		var foreign []string
		p.Eval(`[...document.querySelectorAll("a[href], form[action], img[src], [hx-get], [hx-on\\:load], [onclick], [onerror], [onload]")]
			.filter(e => (e.href && !e.href.baseVal && !e.href.startsWith(location.origin)) || (e.hasAttribute("hx-get") && !e.getAttribute("hx-get").startsWith("./?")) || [...e.attributes].some(a => a.name.startsWith("on") || a.name.startsWith("hx-on")))
			.map(e => e.cloneNode().outerHTML)`, &foreign)
		if len(foreign) > 0 {
			t.Errorf("%s has %q", view, foreign)
		}
		if n := p.Count("script:not([src^='assets/'])") + p.Count("main style, main svg[onload], main meta, main iframe, main object"); n > 0 {
			t.Errorf("%s has %d elements of a session's making", view, n)
		}
		var size int
		p.Eval("document.documentElement.outerHTML.length", &size)
		if size > 1_000_000 {
			t.Errorf("%s has %d characters", view, size)
		}
		var turned int
		p.Eval(`(document.body.textContent.match(/[\u202a-\u202e\u2066-\u2069\x1b\x00]/g) ?? []).length`, &turned)
		if turned > 0 {
			t.Errorf("%s has %d characters that turn or drive what is around them", view, turned)
		}
	}
}
