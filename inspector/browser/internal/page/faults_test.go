package page

import (
	"testing"
	"time"
)

// Each kind of fault fails a test.
func TestFaultsFail(t *testing.T) {
	t.Parallel()
	const foreign = "http://elsewhere.example/"
	type fault struct {
		policy, body string
		noScript     bool
		want         []string
	}
	for name, f := range map[string]fault{
		"error":     {body: `<script>console.error("broken", 7)</script>`, want: []string{"console error: broken 7"}},
		"warning":   {body: `<script>console.warn("odd")</script>`, want: []string{"console warning: odd"}},
		"assertion": {body: `<script>console.assert(false, "not so")</script>`, want: []string{"console assert: not so"}},
		"exception": {body: `<script>undefinedFunction()</script>`, want: []string{"exception: ReferenceError: undefinedFunction"}},
		"rejection": {body: `<script>Promise.reject(new Error("late"))</script>`, want: []string{"exception: Error: late"}},
		"dialog":    {body: `<script>alert("hello")</script>`, want: []string{"dialog: hello"}},
		"missing":   {body: `<img alt="" src="nowhere.png">`, want: []string{"/nowhere.png: 404"}},
		"foreign": {body: `<img alt="" src="` + foreign + `x.png">`,
			want: []string{"foreign request: GET " + foreign + "x.png", "request: GET " + foreign + "x.png: net::ERR_NAME_NOT_RESOLVED"}},
		"frame": {body: `<iframe title="Other" src="` + foreign + `"></iframe>`,
			want: []string{"foreign request: GET " + foreign, "request: GET " + foreign + ": net::ERR_NAME_NOT_RESOLVED"}},
		"socket": {body: `<script>new WebSocket("ws://elsewhere.example/").onclose = () => document.body.id = "done"</script>`,
			want: []string{"foreign request: GET ws://elsewhere.example/", "log error: WebSocket connection"}},
		"inline script": {policy: "script-src 'self'", body: `<script>console.error("run")</script>`,
			want: []string{"policy: script-src-elem does not allow inline", "log error: Executing inline script violates"}},
		"eval": {policy: "script-src 'unsafe-inline'", body: `<script>try { eval("1") } catch (e) {}</script>`,
			want: []string{"policy: script-src does not allow eval"}},
		"reported only": {policy: "report script-src 'self'", body: `<script>1</script>`,
			want: []string{"policy: script-src-elem does not allow inline"}},
		"blocked": {policy: "connect-src 'none'", body: `<script>fetch("/x").catch(() => 0)</script>`,
			want: []string{"policy: connect-src does not allow", "log error: Connecting to", "log error: Fetch API cannot load"}},
		"style, without scripts": {policy: "style-src 'self'", body: `<p style="color: red">Red</p>`, noScript: true,
			want: []string{"policy: style-src-attr does not allow inline", "log error: Applying inline style violates"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := serve(t, f.policy, map[string]string{"/": document(f.body)})
			mustFail(t, func(t testing.TB) {
				p := Open(t, base, Options{NoScript: f.noScript})
				p.Go("/")
				if name == "socket" {
					p.WaitFor("document.body.id === 'done'")
				}
			}, f.want...)
		})
	}
}

// What is wrong with a page is known after it was left, too.
func TestFaultsAreKept(t *testing.T) {
	t.Parallel()
	base := serve(t, "", map[string]string{"/": document(`<script>console.error("one")</script>`), "/two": document(`<script>console.error("two")</script>`)})
	mustFail(t, func(t testing.TB) {
		p := Open(t, base, Options{})
		p.Go("/")
		p.Go("/two")
		p.Expect("two")
	}, "console error: one")
}

// What comes of a test's last act is waited for.
func TestLastFault(t *testing.T) {
	t.Parallel()
	base := serve(t, "", map[string]string{"/": document(`<button>Act</button><script>
		document.querySelector("button").onclick = () => requestAnimationFrame(() => {
			for (const begin = Date.now(); Date.now() < begin + 300; );
			console.error("late")
		})</script>`)})
	mustFail(t, func(t testing.TB) {
		p := Open(t, base, Options{})
		p.Go("/")
		p.Click("button")
	}, "console error: late")
}

// A fault that is expected fails no test; it does if it is missing.
func TestExpect(t *testing.T) {
	t.Parallel()
	base := serve(t, "", map[string]string{"/": document(`<script>console.error("one"); setTimeout(() => console.error("two"), 50)</script>`)})
	p := Open(t, base, Options{})
	p.Go("/")
	p.Expect("^console error: (one|two)$")
	p.Expect("two")
	mustFail(t, func(t testing.TB) {
		p := Open(t, base, Options{})
		p.Go("/")
		p.Expect("one|two")
		p.opts.Patience = time.Millisecond
		p.Expect("three")
	}, `no fault matches "three"; there are ["console error: one"`)
	mustFail(t, func(t testing.TB) {
		p := Open(t, base, Options{})
		p.Expect("(")
	}, "missing closing )")
}
